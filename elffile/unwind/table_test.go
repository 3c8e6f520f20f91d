package unwind

import (
	"slices"
	"testing"
)

// tableOf has rows of a function each: with a frame pointer if it is 'f', and else without.
func tableOf(functions string, size uint32) *Table {
	t := &Table{}
	for i, kind := range functions {
		at := uint32(i) * size
		add := func(offset uint32, r Rule) { t.Rows = append(t.Rows, Row{at + offset, r}) }
		add(0, unframed)
		switch kind {
		case 'f': // push rbp; ...; mov rbp, rsp
			add(1, pushed)
			add(9, settled)
			add(size-1, popped)
		case 'r': // push rbx
			add(1, rule(ByRSP, SameRBP, 2))
		case 'p': // rbp is pushed, and used for something else
			add(1, pushed)
			add(size-1, popped)
		case 'l': // a call could be in between
			add(1, pushed)
			add(9+maxPrologue, settled)
		}
	}
	return t
}

func TestFramed(t *testing.T) {
	const size = minFramed / 4
	for _, c := range []struct {
		functions string
		want      []Range
	}{
		{"ffff", nil},                           // short of minFramed: from the last row on, nothing says where code ends
		{"rffffr", []Range{{size, 5*size + 1}}}, // up to the push of rbx
		{"fffff", []Range{{0, 5*size - 1}}},
		{"ffpff", nil},
		{"fflfff", nil},
		{"r", nil},
		{"", nil},
	} {
		if got := tableOf(c.functions, size).Framed(); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.functions, got, c.want)
		}
	}
	var many string
	for range maxFramed + 3 {
		many += "ffffr"
	}
	many += "ffffffr"
	got := tableOf(many, size).Framed()
	if longest := got[len(got)-1]; len(got) != maxFramed || longest.To-longest.From < 6*size-1 ||
		!slices.IsSortedFunc(got, func(a, b Range) int { return int(a.From) - int(b.From) }) {
		t.Errorf("of many: %v", got)
	}
}
