package events

import (
	"reflect"
	"testing"
	"time"
)

func TestParseTruth(t *testing.T) {
	got, err := parseTruth([]string{
		"alloc guest.A.b byte[] 3 360",
		"alloc guest.A.c guest.A$C 2 32",
		"allocated 400",
		"enter guest.L.m guest.L$X 5",
		"wait guest.W.hot guest.W$Hot 7 2 3000 2500 4",
		"idle guest.W.none guest.W$None 1 1 900 900 0",
		"fault guest.F.leaf guest.F$Leaf 4096",
		"card guest.M.order guest.M$Order 900",
		"collections PS-Scavenge 4 8",
		"cpu guest.W.heavy 5000",
		"depth guest.W.descend 21",
		"checksum abc0",
	})
	want := Truth{
		Allocations: []Allocated{{"guest.A.b", "byte[]", 3, 360}, {"guest.A.c", "guest.A$C", 2, 32}},
		Allocated:   400,
		Acquired:    []Acquired{{"guest.L.m", "guest.L$X", 5}},
		Waits:       []Waited{{"guest.W.hot", "guest.W$Hot", 7, 2, 3000, 2500, 4e6}},
		Idle:        []Waited{{"guest.W.none", "guest.W$None", 1, 1, 900, 900, 0}},
		Faults:      []Faulted{{"guest.F.leaf", "guest.F$Leaf", 4096}},
		Cards:       []Marked{{"guest.M.order", "guest.M$Order", 900}},
		Collections: []Collected{{"PS-Scavenge", 4, 8 * time.Millisecond}},
		Worked:      []Worked{{"guest.W.heavy", 5000}},
		Depths:      map[string]int{"guest.W.descend": 21},
		Checksum:    "abc0",
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
	cells := got.Cells()
	if len(cells) != 2 || cells[0] != (Cell{Class: "byte[]", Objects: 3, Bytes: 360}) {
		t.Errorf("cells %+v", cells)
	}
	for _, line := range []string{
		"", "nonsense", "alloc a b 1", "alloc a b 1 2 3", "alloc a b x 2", "alloc a b -1 2", "allocated", "enter a b",
		"wait a b 1 2 3 4", "idle a b 1 2 3 4 5 6", "fault a b 99999999999999999999", "collections a 1", "checksum",
	} {
		if got, err := parseTruth([]string{line, "checksum 0"}); err == nil {
			t.Errorf("parsed %q as %+v", line, got)
		}
	}
	if _, err := parseTruth(nil); err == nil {
		t.Error("a truth without a checksum was accepted")
	}
}

// A guest that was hit by a probe may print anything.
func FuzzParseTruth(f *testing.F) {
	f.Add("alloc a b 1 2")
	f.Add("wait a b 1 2 3 4 5")
	f.Fuzz(func(t *testing.T, line string) {
		truth, err := parseTruth([]string{line, "checksum 0"})
		if (err == nil) == reflect.DeepEqual(truth, Truth{}) {
			t.Errorf("%q: %+v, %v", line, truth, err)
		}
	})
}
