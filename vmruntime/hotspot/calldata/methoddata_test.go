package calldata

import (
	"encoding/binary"
	"errors"
	"reflect"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// testTags are those of every JDK so far.
func testTags() *[256]dataKind {
	return &[256]dataKind{
		dataUnknown, dataBit, dataCounter, dataJump, dataReceiver, dataVirtual, dataReturn, dataBranch, dataArray,
		dataArray, dataCallTypes, dataVirtTypes, dataArray, dataTrap,
	}
}

// dataEntry makes an entry of a MethodData.
func dataEntry(tag byte, bci uint16, cells ...uint64) []byte {
	entry := []byte{tag, 0xee, byte(bci), byte(bci >> 8), 0xff, 0xff, 0xff, 0xff} // flags and traps are not looked at
	for _, cell := range cells {
		entry = binary.LittleEndian.AppendUint64(entry, cell)
	}
	return entry
}

func join(entries ...[]byte) (all []byte) {
	for _, e := range entries {
		all = append(all, e...)
	}
	return all
}

func TestDecodeMethodData(t *testing.T) {
	const a, b = 0x7f0000001000, 0x7f0000002000 // classes
	for _, test := range []struct {
		name string
		data []byte
		gap  int // gap that it must be found to have
		want []SiteCount
	}{
		{"empty", nil, 0, nil},
		{"no calls", join(
			dataEntry(1, 2), dataEntry(3, 3, 10, 8), dataEntry(7, 5, 10, 8, 4), dataEntry(6, 7, 1, 2, 3, 4, 5, 6, 7),
			dataEntry(8, 9, 4, 1, 2, 3, 4), dataEntry(12, 10, 1, a), dataEntry(13, 11, a),
			dataEntry(4, 12, 1, a, 7, b, 9),
		), 0, nil},
		{"static", dataEntry(2, 4, 1000), 0, []SiteCount{{BCI: 4, Count: 1000}}},
		{"static with types", join(dataEntry(10, 4, 1000, 2, a, 1), dataEntry(2, 9, 5)), 0,
			[]SiteCount{{BCI: 4, Count: 1000}, {BCI: 9, Count: 5}}},
		{"virtual, JDK 25", join(dataEntry(5, 1, 30, a, 20, b, 10), dataEntry(5, 6, 0, a, 7, 0, 0), dataEntry(2, 9, 5)),
			0,
			[]SiteCount{
				{1, 30, []ReceiverRow{{a, 20}, {b, 10}}}, {6, 0, []ReceiverRow{{a, 7}}}, {BCI: 9, Count: 5},
			}},
		{"virtual, JDK 17", join(dataEntry(5, 1, 30, 0, a, 20, b, 10), dataEntry(5, 6, 0, 0, a, 7, 0, 0),
			dataEntry(2, 9, 5)), 1,
			[]SiteCount{
				{1, 30, []ReceiverRow{{a, 20}, {b, 10}}}, {6, 0, []ReceiverRow{{a, 7}}}, {BCI: 9, Count: 5},
			}},
		{"cast, JDK 17", join(dataEntry(4, 1, 30, 3, a, 20, b, 10), dataEntry(2, 9, 5)), 1,
			[]SiteCount{{BCI: 9, Count: 5}}},
		{"virtual with types, JDK 17", join(dataEntry(11, 1, 0, 0, a, 20, 0, 0, 1, a), dataEntry(2, 9, 5)), 1,
			[]SiteCount{{1, 0, []ReceiverRow{{a, 20}}}, {BCI: 9, Count: 5}}},
		{"virtual with types, JDK 25", join(dataEntry(11, 1, 0, a, 20, 0, 0, 1, a), dataEntry(2, 9, 5)), 0,
			[]SiteCount{{1, 0, []ReceiverRow{{a, 20}}}, {BCI: 9, Count: 5}}},
	} {
		for _, expected := range []int{0, 1} { // by whatever was decoded before
			d := &Decoder{tags: testTags(), rows: 2, retRows: 2, gap: expected}
			got, err := d.Decode(test.data)
			if err != nil || !reflect.DeepEqual(got, test.want) {
				t.Errorf("%s, gap %d expected: %+v, %v; want %+v", test.name, expected, got, err, test.want)
			}
			if hasRows := len(test.data) > 0 && (test.data[0] == 5 || test.data[0] == 4 ||
				test.data[0] == 11); hasRows && d.gap != test.gap {
				t.Errorf("%s: a gap of %d was found", test.name, d.gap)
			}
		}
	}
}

func TestDecodeMethodDataMalformed(t *testing.T) {
	for name, data := range map[string][]byte{
		"no tag":          dataEntry(0, 1),
		"unknown tag":     dataEntry(99, 1),
		"header cut":      dataEntry(2, 1, 5)[:7],
		"cells cut":       dataEntry(2, 1, 5)[:12],
		"count cut":       dataEntry(8, 1),
		"endless array":   dataEntry(8, 1, 1<<40-1),
		"endless types":   dataEntry(10, 1, 7, 1<<31, 0),
		"backwards":       join(dataEntry(2, 9, 1), dataEntry(2, 4, 1)),
		"twice":           join(dataEntry(2, 9, 1), dataEntry(2, 9, 1)),
		"rest":            join(dataEntry(2, 9, 1), []byte{1, 0, 10}),
		"receiver at end": dataEntry(5, 1, 30, 0, 0x1000, 20),
	} {
		d := &Decoder{tags: testTags(), rows: 2, retRows: 2}
		if got, err := d.Decode(data); !errors.Is(err, vmruntime.ErrMalformed) || got != nil || d.gap != 0 {
			t.Errorf("%s: %+v, %v, gap %d", name, got, err, d.gap)
		}
	}
}

// FuzzMethodData: error xor value, and no more comes out than was put in.
func FuzzMethodData(f *testing.F) {
	f.Add(join(dataEntry(5, 1, 30, 0, 0x1000, 20, 0x2000, 10), dataEntry(2, 9, 5)), byte(1), byte(2))
	f.Add(dataEntry(11, 1, 0, 0x1000, 20, 0, 0, 1, 0x1000), byte(0), byte(2))
	f.Add(dataEntry(8, 1, 1<<40-1), byte(0), byte(8))
	f.Fuzz(func(t *testing.T, data []byte, gap, rows byte) {
		d := &Decoder{tags: testTags(), rows: int(rows), retRows: int(rows), gap: int(gap & 1)}
		sites, err := d.Decode(data)
		if err != nil {
			if sites != nil {
				t.Fatalf("%v, %v", sites, err)
			}
			return
		}
		total, last := 0, -1
		for i := range sites {
			total += entryHeader + EntryCell*(1+2*len(sites[i].Rows))
			if sites[i].BCI <= last {
				t.Fatalf("%d after %d", sites[i].BCI, last)
			}
			last = sites[i].BCI
			sites[i].Total()
		}
		if total > len(data) {
			t.Fatalf("%d bytes came out of %d", total, len(data))
		}
	})
}
