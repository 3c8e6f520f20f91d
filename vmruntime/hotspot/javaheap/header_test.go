package javaheap

import (
	"encoding/binary"
	"testing"
)

// TestHeaders decodes headers of each form that JDKs have.
func TestHeaders(t *testing.T) {
	header := func(words ...uint64) (b []byte) {
		for _, w := range words {
			b = binary.LittleEndian.AppendUint64(b, w)
		}
		return b
	}
	wide := ObjectLayout{Klass: 8, ArrayLength: 16, MarkBits: 39}
	narrow := ObjectLayout{Klass: 8, KlassIsNarrow: true, KlassBase: 0x10_0000_0000, KlassShift: 3, ArrayLength: 12,
		MarkBits: 39}
	compact := ObjectLayout{KlassInMark: true, KlassBit: 42, KlassBase: 0x10_0000_0000, KlassShift: 10, ArrayLength: 8,
		MarkBits: 42}
	for name, test := range map[string]struct {
		layout ObjectLayout
		header []byte
		size   uint64
		klass  uint64 // 0 if it is no object
		length uint32
	}{
		"wide":             {wide, header(1, 0x7f00_0000_1000, 5), 20, 0x7f00_0000_1000, 5},
		"wide, odd":        {wide, header(1, 0x7f00_0000_1001, 5), 20, 0, 0},
		"wide, kernel":     {wide, header(1, 0xffff_0000_0000_1000, 5), 20, 0, 0},
		"narrow":           {narrow, header(1, 7<<32|0x200), 16, 0x10_0000_1000, 7},
		"narrow, null":     {narrow, header(1, 7<<32), 16, 0, 0},
		"hash":             {narrow, header(0x12_3456_7801, 7<<32|0x200), 16, 0x10_0000_1000, 7},
		"no such hash":     {narrow, header(0x9912_3456_7801, 7<<32|0x200), 16, 0, 0},
		"locked":           {narrow, header(0x7f00_1234_5678, 7<<32|0x200), 16, 0x10_0000_1000, 7},
		"monitor":          {narrow, header(0x7f00_1234_5672, 7<<32|0x200), 16, 0x10_0000_1000, 7},
		"no such monitor":  {narrow, header(0x1_7f00_1234_5672, 7<<32|0x200), 16, 0, 0},
		"compact":          {compact, header(4<<42|0x12_3456_7801, 9), 12, 0x10_0000_1000, 9},
		"compact, no klas": {compact, header(0x12_3456_7801, 9), 12, 0, 0},
	} {
		if got := test.layout.HeaderSize(); got != test.size {
			t.Errorf("%s: header of %d bytes, want %d", name, got, test.size)
		}
		got := test.layout.AppendCandidate(nil, 0x40, test.header[:test.size])
		if test.klass == 0 {
			if len(got) > 0 {
				t.Errorf("%s: %+v, want none", name, got)
			}
		} else if len(got) != 1 || got[0] != (Candidate{0x40, test.klass, test.length}) {
			t.Errorf("%s: %+v, want class %#x, length %d", name, got, test.klass, test.length)
		}
	}
}
