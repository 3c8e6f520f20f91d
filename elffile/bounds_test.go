package elffile

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/elffile/elftest"
)

// unwound makes a file with code at 0x1000, and .eh_frame with an entry for each range. encoding is
// that of the table in .eh_frame_hdr.
func unwound(encoding byte, symbols []elftest.Symbol, ranges ...Range) []byte {
	const header, frames, size = 0x2000, 0x2800, 0x2000
	image := elftest.Image{
		Machine: elf.EM_X86_64,
		Segments: []elf.Prog64{
			elftest.Code(0x1000, 0x1000, size),
			{Type: uint32(elf.PT_GNU_EH_FRAME), Off: header, Vaddr: header, Filesz: uint64(12 + 8*len(ranges))},
		},
		Sections: elftest.Symbols(elf.SHT_SYMTAB, symbols...),
		Pad:      0x1000 + size,
	}
	b := image.Bytes()
	copy(b[header:], []byte{1, 0x1b, 0x03, encoding})
	put := func(at int, v uint64) { binary.LittleEndian.PutUint32(b[at:], uint32(v)) }
	put(header+8, uint64(len(ranges)))
	for i, r := range ranges {
		entry := uint64(frames + 32*i)
		put(header+12+8*i, r.Start-header)
		put(header+16+8*i, entry-header)
		put(int(entry), 28)
		put(int(entry)+8, r.Start-(entry+8))
		put(int(entry)+12, r.End-r.Start)
	}
	return b
}

// The range of a function is where the symbols and .eh_frame agree.
func TestFunctionAround(t *testing.T) {
	const usual = 0x3b
	for _, test := range []struct {
		name     string
		encoding byte
		symbols  []elftest.Symbol
		ranges   []Range
		want     Range
		err      error
	}{
		{"symbol alone", usual, []elftest.Symbol{{Name: "f", Value: 0x1000, Size: 0x20},
			{Name: "g", Value: 0x1020, Size: 0x10}}, nil,
			Range{0x1000, 0x1020}, nil},
		{"stripped", usual, nil, []Range{{0x1000, 0x1018}, {0x1020, 0x1040}}, Range{0x1000, 0x1018}, nil},
		{"stripped, between two functions", usual, nil, []Range{{0x1000, 0x1008}, {0x1020, 0x1040}}, Range{},
			ErrNotFound},
		{"stripped, before the first", usual, nil, []Range{{0x1020, 0x1040}}, Range{}, ErrNotFound},
		{"one entry for two symbols", usual, []elftest.Symbol{{Name: "f", Value: 0x1000, Size: 0x18},
			{Name: "g", Value: 0x1018, Size: 8}},
			[]Range{{0x1000, 0x1040}}, Range{0x1000, 0x1018}, nil},
		{"a symbol longer than its entry", usual, []elftest.Symbol{{Name: "f", Value: 0x1000, Size: 0x400}},
			[]Range{{0x1000, 0x1018}},
			Range{0x1000, 0x1018}, nil},
		{"a symbol without a size", usual, []elftest.Symbol{{Name: "f", Value: 0x1000}}, nil, Range{}, ErrNotFound},
		{"a label inside", usual, []elftest.Symbol{{Name: "f", Value: 0x1000, Size: 0x40},
			{Name: "label", Value: 0x1018}}, nil,
			Range{0x1000, 0x1018}, nil},
		{"symbols elsewhere", usual, []elftest.Symbol{{Name: "exported", Value: 0x1100, Size: 0x40}},
			[]Range{{0x1000, 0x1018}},
			Range{0x1000, 0x1018}, nil},
		{"unusual encoding", 0x3c, nil, []Range{{0x1000, 0x1018}}, Range{}, ErrNotFound},
		{"a size that wraps around", usual, []elftest.Symbol{{Name: "f", Value: 0x1000, Size: math.MaxUint64}}, nil,
			Range{}, ErrMalformed},
		{"nothing", usual, nil, nil, Range{}, ErrNotFound},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, err := openBytes(unwound(test.encoding, test.symbols, test.ranges...))
			if err != nil {
				t.Fatal(err)
			}
			if got, err := f.FunctionAround(0x1010); got != test.want || !errors.Is(err, test.err) {
				t.Errorf("%#x, %v, want %#x, %v", got, err, test.want, test.err)
			}
		})
	}
	t.Run("too many entries", func(t *testing.T) {
		b := unwound(usual, nil, Range{0x1000, 0x1018})
		binary.LittleEndian.PutUint32(b[0x2008:], math.MaxUint32)
		f, err := openBytes(b)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.FunctionAround(0x1010); !errors.Is(err, ErrMalformed) {
			t.Errorf("%v, want %v", err, ErrMalformed)
		}
	})
}
