package elffile

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// A Range is code from Start up to, not including, End: addresses of the file.
type Range struct{ Start, End uint64 }

// FunctionAround returns a range of the function around addr on which all information in the file
// agrees. That is its symbol, cut where another symbol begins, and its entry in .eh_frame. A
// stripped file has the latter only. Symbols without a size give no end, as code without any symbol
// may follow.
//
// Code that a compiler moved elsewhere (.cold) is another function here. ErrNotFound if its
// beginning and end are unknown.
func (f *File) FunctionAround(addr uint64) (Range, error) {
	symbols, symbolErr := f.symbolAround(addr)
	unwind, unwindErr := f.unwindAround(addr)
	for _, err := range []error{symbolErr, unwindErr} {
		if err != nil && !errors.Is(err, ErrNotFound) {
			return Range{}, err
		}
	}
	if symbolErr != nil && unwindErr != nil {
		return Range{}, fmt.Errorf("function around %#x: neither symbols nor .eh_frame have its bounds: %w", addr,
			ErrNotFound)
	}
	// The beginnings of other symbols count even if none with a size covers addr.
	around := Range{max(symbols.Start, unwind.Start), min(symbols.End, unwind.End)}
	if addr < around.Start || addr >= around.End {
		return Range{}, fmt.Errorf("function around %#x: sizes wrap around: %w", addr, ErrMalformed)
	}
	return around, nil
}

// symbolAround returns the code from the last symbol up to addr to the next one, or to the end of
// the smallest symbol with a size. If none with a size covers addr, the error is ErrNotFound, and
// the range is bounded by the other symbols.
func (f *File) symbolAround(addr uint64) (Range, error) {
	around, covered := Range{0, math.MaxUint64}, false
	for _, open := range []func() (*symbolSection, error){f.symtab, f.dynsym, f.debugSymtab} {
		table, err := open()
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return around, err
		}
		err = table.each(func(sym *elf.Sym64) bool {
			if !defined(sym) || !isCode(sym, cString(table.names, sym.Name), table) {
				return true
			}
			if sym.Value > addr {
				around.End = min(around.End, sym.Value)
				return true
			}
			around.Start = max(around.Start, sym.Value)
			if sym.Size > addr-sym.Value {
				around.End, covered = min(around.End, sym.Value+sym.Size), true
			}
			return true
		})
		if err != nil {
			return around, err
		}
	}
	if !covered {
		return around, fmt.Errorf("symbol with a size around %#x: %w", addr, ErrNotFound)
	}
	return around, nil
}

// Encodings of pointers in .eh_frame_hdr (LSB core specification, "DWARF Exception Header
// Encoding").
const (
	encodedUint32   = 0x03
	encodedSigned32 = 0x0b
	relativeToPlace = 0x10
	relativeToTable = 0x30
)

// unwindEncodings is the beginning of a table in .eh_frame_hdr as linkers write it, and unwindFixed
// how many bytes there are before its entries: version, three encodings, the address of .eh_frame,
// and a count.
var unwindEncodings = []byte{1, relativeToPlace | encodedSigned32, encodedUint32, relativeToTable | encodedSigned32}

const unwindFixed = 12

// unwindAround returns the range of the entry of .eh_frame that covers addr, found in the sorted
// table of .eh_frame_hdr. It only reads the encodings that linkers write. With ErrNotFound the
// range is everything.
func (f *File) unwindAround(addr uint64) (Range, error) {
	everything := Range{0, math.MaxUint64}
	missing := fmt.Errorf("entry of .eh_frame around %#x: %w", addr, ErrNotFound)
	header := f.segmentTyped(elf.PT_GNU_EH_FRAME)
	if header == nil {
		return everything, missing
	}
	const fixed = unwindFixed
	head, err := f.read(header.Off, min(header.Filesz, fixed), fixed)
	if err != nil {
		return everything, fmt.Errorf(".eh_frame_hdr: %w", err)
	}
	if !bytes.HasPrefix(head, unwindEncodings) || len(head) < fixed {
		return everything, missing
	}
	count := uint64(binary.LittleEndian.Uint32(head[8:]))
	const size = 8 // bytes of an entry: where a function begins, and where its entry in .eh_frame is
	if count > (header.Filesz-fixed)/size {
		return everything, fmt.Errorf(".eh_frame_hdr: %d entries in %d bytes: %w", count, header.Filesz, ErrMalformed)
	}
	var entry [size]byte
	var failed error
	at := func(n uint64) (start, description uint64) {
		if err := f.readFull(entry[:], header.Off+fixed+n*size); err != nil {
			failed = err
		}
		signed := func(b []byte) uint64 { return header.Vaddr + uint64(int64(int32(binary.LittleEndian.Uint32(b)))) }
		return signed(entry[:4]), signed(entry[4:])
	}
	low, high := uint64(0), count // entries below low begin at addr or before it, those from high on behind it
	for low < high && failed == nil {
		middle := low + (high-low)/2
		if start, _ := at(middle); start <= addr {
			low = middle + 1
		} else {
			high = middle
		}
	}
	if failed != nil {
		return everything, fmt.Errorf(".eh_frame_hdr: %w", failed)
	}
	if low == 0 {
		return everything, missing
	}
	start, description := at(low - 1)
	if failed != nil {
		return everything, fmt.Errorf(".eh_frame_hdr: %w", failed)
	}
	end, err := f.unwindEnd(start, description)
	if err != nil {
		return everything, err
	}
	if addr >= end {
		return everything, missing
	}
	return Range{start, end}, nil
}

// unwindEnd reads the end of the code that an entry of .eh_frame describes, which begins at start.
// Another entry defines how it encodes addresses; start shows whether that is the usual way.
func (f *File) unwindEnd(start, description uint64) (uint64, error) {
	const begin, size = 8, 16 // bytes: length, distance to the other entry; then start and length of the code
	offset, ok := f.AddressToOffset(description)
	if !ok {
		return 0, fmt.Errorf("entry of .eh_frame at %#x is not in the file: %w", description, ErrMalformed)
	}
	entry, err := f.read(offset, size, size)
	if err != nil {
		return 0, fmt.Errorf("entry of .eh_frame at %#x: %w", description, err)
	}
	encoded := uint64(int64(int32(binary.LittleEndian.Uint32(entry[begin:]))))
	if description+begin+encoded != start {
		return 0, fmt.Errorf("entry of .eh_frame at %#x is in an unusual encoding: %w", description, ErrNotFound)
	}
	return start + uint64(binary.LittleEndian.Uint32(entry[begin+4:])), nil
}

// segmentTyped returns the first program header of that type, or nil.
func (f *File) segmentTyped(t elf.ProgType) *elf.Prog64 {
	for i := range f.progs {
		if p := &f.progs[i]; elf.ProgType(p.Type) == t {
			return p
		}
	}
	return nil
}
