package input

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/compare"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/layout"
)

// small is a valid stored profile.
func small() *pprof.Profile {
	m := &pprof.Mapping{ID: 1, File: "[jit:HotSpot]", HasFunctions: true}
	f := &pprof.Function{ID: 1, Name: "a.b"}
	l := &pprof.Location{ID: 1, Mapping: m, Line: []pprof.Line{{Function: f}, {Function: f}}}
	return &pprof.Profile{
		SampleType: []*pprof.ValueType{{Type: "samples", Unit: "count"}},
		Mapping:    []*pprof.Mapping{m}, Function: []*pprof.Function{f}, Location: []*pprof.Location{l},
		Sample: []*pprof.Sample{{Location: []*pprof.Location{l, l}, Value: []int64{7},
			NumLabel: map[string][]int64{"pid": {1}}}},
	}
}

// smallCalls is a valid stored profile of calls.
func smallCalls() *pprof.Profile {
	p := small()
	p.SampleType[0].Type = stored.TypeCalls
	l := &pprof.Location{ID: 2, Mapping: p.Mapping[0], Address: 8,
		Line: []pprof.Line{{Function: p.Function[0], Line: 3}}}
	p.Location = append(p.Location, l)
	p.Sample[0].Location = []*pprof.Location{l, l}
	p.Sample[0].Label = map[string][]string{stored.LabelEngine: {"page"}, stored.LabelBasis: {"sampled"}}
	p.Sample[0].NumLabel[stored.LabelStride] = []int64{7}
	return p
}

// smallEvents is a valid stored profile of events.
func smallEvents(kind profile.EventKind) *pprof.Profile {
	p := small()
	p.SampleType, p.DefaultSampleType = stored.EventTypes(kind)
	s := p.Sample[0]
	s.Value = []int64{7, 8, 9, 10}[:len(p.SampleType)]
	s.Label = map[string][]string{stored.LabelClass: {"byte[]"}, stored.LabelKind: {"spin"}, stored.LabelPlace: {"old"},
		stored.LabelProbe: {"p"}, stored.LabelValue: {"8-15"}}
	s.NumLabel[stored.LabelOffset], s.NumUnit = []int64{8}, map[string][]string{stored.LabelOffset: {stored.UnitBytes}}
	return p
}

func encode(t testing.TB, write func(io.Writer) error) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := write(&out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func gzipped(t testing.TB, data []byte) []byte {
	return encode(t, func(w io.Writer) error {
		z := gzip.NewWriter(w)
		if _, err := z.Write(data); err != nil {
			return err
		}
		return z.Close()
	})
}

func TestRead(t *testing.T) {
	for name, data := range map[string][]byte{
		"gzipped": encode(t, small().Write),
		"plain":   encode(t, small().WriteUncompressed),
	} {
		p, err := Read(bytes.NewReader(data))
		if err != nil || len(p.Sample) != 1 || p.Sample[0].Value[0] != 7 {
			t.Errorf("%s: Read = %v, %v", name, p, err)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	const limit = 1 << 20
	whole := encode(t, small().Write)
	contradictory := small()
	contradictory.Sample[0].Value = []int64{1, 2}
	for _, test := range []struct {
		name string
		data []byte
		want string
	}{
		{"nothing", nil, "empty"},
		{"empty gzip", gzipped(t, nil), "empty"},
		{"half a file", whole[:len(whole)/2], "decompress: unexpected EOF"},
		{"text", []byte("java;a;b 5\n"), "not a pprof profile"},
		{"another format of pprof's", []byte("--- heapz 1 ---\nformat = java\n"), "not a pprof profile"},
		{"a large file", make([]byte, limit+1), "larger than 1 MB"},
		{"a decompression bomb", gzipped(t, make([]byte, 100*limit)), "larger than 1 MB"},
		{"a stack without end", packed(fieldSample, packed(sampleLocation, make([]byte, maxStack+1))),
			"more than 65536 frames"},
		{"values without types", encode(t, contradictory.WriteUncompressed), "is inconsistent"},
		{"a string out of range", []byte{0x0a, 0x02, 0x08, 0x7f}, "not a pprof profile"},
	} {
		p, err := read(bytes.NewReader(test.data), limit, memoryFor)
		if p != nil || err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: read = %v, %v, want an error with %q", test.name, p, err, test.want)
		}
	}
}

// packed is a field with so many bytes.
func packed(field byte, data []byte) []byte {
	return append(binary.AppendUvarint([]byte{field<<3 | 2}, uint64(len(data))), data...)
}

// bombs are profiles that take much more memory than they have bytes, and more the larger n is.
func bombs(n int) map[string][]byte {
	sample := func(data ...[]byte) []byte { return packed(fieldSample, slices.Concat(data...)) }
	all := map[string][]byte{
		"one string":         packed(fieldStringTable, make([]byte, 60*n)),
		"empty strings":      bytes.Repeat(packed(fieldStringTable, nil), n),
		"empty samples":      bytes.Repeat(sample(), n),
		"locations":          bytes.Repeat(packed(fieldLocation, nil), n),
		"functions":          bytes.Repeat(packed(5, nil), n),
		"mappings":           bytes.Repeat(packed(3, nil), n),
		"types":              bytes.Repeat(packed(1, nil), n),
		"lines":              packed(fieldLocation, bytes.Repeat(packed(locationLine, nil), n)),
		"deep stacks":        bytes.Repeat(sample(packed(sampleLocation, make([]byte, n/2))), 8),
		"a stack by numbers": bytes.Repeat(sample(bytes.Repeat([]byte{sampleLocation << 3, 0}, n/2)), 2),
		"values":             bytes.Repeat(sample(packed(sampleValue, make([]byte, n/2))), 8),
		"labels":             sample(bytes.Repeat(packed(sampleLabel, []byte{8, 0, 24, 1}), n)),
		"samples with a label": slices.Concat(packed(fieldStringTable, []byte("pid")),
			bytes.Repeat(sample(packed(sampleLabel, []byte{8, 1, 24, 1})), n/8)),
		"comments": packed(fieldComment, make([]byte, n)),
	}
	for name, data := range all {
		all[name] = slices.Concat(packed(fieldStringTable, nil), data)
	}
	return all
}

// What measure says is at least what the parser takes, with what it leaves behind.
func TestMeasure(t *testing.T) {
	if testing.Short() {
		t.Skip("the race detector, with which the short form runs, allocates as well")
	}
	profiles := bombs(1 << 15)
	profiles["small"] = encode(t, small().WriteUncompressed)
	for name, data := range profiles {
		need, size, err := measure(bytes.NewReader(data), math.MaxInt32)
		if err != nil || size != int64(len(data)) {
			t.Errorf("%s: size %d of %d, %v", name, size, len(data), err)
			continue
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err = pprof.ParseUncompressed(data)
		runtime.ReadMemStats(&after)
		took := int64(after.TotalAlloc - before.TotalAlloc)
		t.Logf("%-20s %8d bytes: %9d are allocated, %9d were expected", name, len(data), took, need)
		if err != nil || took > need+64<<10 {
			t.Errorf("%s: %v: parsing allocates %d bytes, %d were expected", name, err, took, need)
		}
	}
}

// Nearly all samples of a CPU in a minute fit, at 99 Hz, if each has another stack and all are as
// deep as the agent shows them.
func TestMemoryForDeepStacks(t *testing.T) {
	const stacks, part = 5800, 10
	frames := bytes.Repeat([]byte{0x80, 0x04}, 1024) // 512
	sample := packed(fieldSample, slices.Concat(packed(sampleLocation, frames), packed(sampleValue, []byte{1})))
	need, size, err := measure(bytes.NewReader(bytes.Repeat(sample, stacks/part)), maxStored)
	if took := (need + size) * part; err != nil || took > memoryFor(took/850) {
		t.Errorf("%v: a recording of %d deep stacks takes %d bytes of memory, more than %d", err, stacks, took,
			memoryFor(took/850))
	}
}

// A file does not take more memory than the bound, whatever it contains.
func TestReadBombs(t *testing.T) {
	for name, data := range bombs(1 << 16) {
		zipped := gzipped(t, data)
		bound := func(file int64) int64 {
			if file != int64(len(zipped)) {
				t.Errorf("%s: a file of %d bytes, want %d", name, file, len(zipped))
			}
			return 1 << 20
		}
		if p, err := read(bytes.NewReader(zipped), maxStored, bound); p != nil || err == nil ||
			!strings.Contains(err.Error(), "set GOMEMLIMIT=") {
			t.Errorf("%s: %v, want it to be refused", name, err)
		}
	}
}

// FuzzRead: a profile or an error, and what was read can be shown.
func FuzzRead(f *testing.F) {
	f.Add(encode(f, small().WriteUncompressed))
	f.Add(encode(f, small().Write))
	f.Add(encode(f, smallCalls().WriteUncompressed))
	for kind := range profile.EventKinds {
		f.Add(encode(f, smallEvents(kind).WriteUncompressed))
	}
	f.Add([]byte{0x0a, 0x02, 0x08, 0x7f})
	f.Add([]byte{0x12, 0x00, 0x22, 0x00})
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := read(bytes.NewReader(data), 1<<16, memoryFor)
		if (p == nil) == (err == nil) {
			t.Fatalf("read = %v, %v", p, err)
		}
		if err != nil {
			return
		}
		for i, view := range []func(io.Writer, *pprof.Profile, *layout.Options) error{
			report.Report, report.Edges, report.Layers, report.Tree, report.Methods,
		} {
			var out bytes.Buffer
			if err := view(&out, p, nil); err == nil && out.Len() == 0 {
				t.Fatalf("view %d shows nothing", i)
			}
		}
		for _, by := range []compare.By{compare.ByMethod, compare.ByEdge, compare.ByContext, compare.ByClass} {
			var out bytes.Buffer
			err := compare.Profiles(&out, compare.Named{Name: "a", Profile: p}, compare.Named{Name: "b", Profile: p},
				&compare.Options{By: by})
			if err == nil && !strings.Contains(out.String(), "100.00  of 100") {
				t.Fatalf("a profile differs from itself by %v:\n%s", by, &out)
			}
		}
	})
}
