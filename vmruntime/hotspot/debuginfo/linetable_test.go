package debuginfo

import (
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmtest"
)

// lineTable encodes entries as javac's order has them: differences, small ones in a byte.
func lineTable(bias uint32, entries ...lineEntry) []byte {
	var out []byte
	var at lineEntry
	fold := func(n int32) []byte { return vmtest.Unsigned5(uint32(n<<1)^uint32(n>>31), bias) }
	for _, e := range entries {
		bci, line := e.bci-at.bci, e.line-at.line
		if b := bci<<3 | line; bci >= 0 && bci < 32 && line >= 0 && line < 8 && b != 0 && b != 255 {
			out = append(out, byte(b))
		} else {
			out = append(append(append(out, 255), fold(bci)...), fold(line)...)
		}
		at = e
	}
	return append(out, 0)
}

func TestLineOf(t *testing.T) {
	ordered := []lineEntry{{0, 10}, {5, 11}, {9, 300}, {40, 301}}
	moved := []lineEntry{{0, 10}, {20, 11}, {8, 12}, {14, 13}} // a loop's condition behind its body
	for _, bias := range []uint32{0, 1} {
		for _, test := range []struct {
			entries []lineEntry
			bci     int
			want    int
		}{
			{ordered, 0, 10},
			{ordered, 4, 10},
			{ordered, 5, 11},
			{ordered, 39, 300},
			{ordered, 1000, 301},
			{moved, 7, 10},
			{moved, 8, 12},
			{moved, 15, 13},
			{moved, 25, 11},
			{[]lineEntry{{3, 7}}, 2, 0},
			{[]lineEntry{{0, 70000}}, 2, 0}, // no class file can say so
			{nil, 0, 0},
		} {
			if got := LineOf(lineTable(bias, test.entries...), test.bci, bias); got != test.want {
				t.Errorf("line of %d in %v is %d, want %d (bias %d)", test.bci, test.entries, got, test.want, bias)
			}
		}
	}
}

func TestLineTableSize(t *testing.T) {
	table := lineTable(1, lineEntry{0, 500}, lineEntry{5, 501})
	if got := LineTableSize(append(table, "what follows"...), 1); got != len(table)-1 {
		t.Errorf("table of %d bytes with its end mark: %d", len(table), got)
	}
}

// FuzzLineTable checks that any bytes give a line that a class file can have, and the same one when
// the table is cut where it ends.
func FuzzLineTable(f *testing.F) {
	f.Add(lineTable(0, lineEntry{0, 10}, lineEntry{20, 11}, lineEntry{8, 12}), 9, false)
	f.Add(lineTable(1, lineEntry{0, 500}), 0, true)
	f.Fuzz(func(t *testing.T, table []byte, bci int, late bool) {
		bias := uint32(0)
		if late {
			bias = 1
		}
		line := LineOf(table, bci, bias)
		if line < 0 || line > maxLine {
			t.Fatalf("line %d", line)
		}
		if again := LineOf(table[:LineTableSize(table, bias)], bci, bias); again != line {
			t.Fatalf("line %d, but %d of the table that was cut at its end", line, again)
		}
	})
}
