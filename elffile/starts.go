package elffile

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sort"
)

// Starts are the start addresses of a file's functions, as far as .eh_frame has them, which a
// stripped file has, too. They are immutable and take four bytes per function.
type Starts struct {
	base  uint64   // what starts counts from
	start []uint32 // ascending
}

// FunctionStarts reads them from the sorted table of .eh_frame_hdr. ErrNotFound if the file has
// none, or one in an encoding that linkers do not write.
func (f *File) FunctionStarts() (*Starts, error) {
	header := f.segmentTyped(elf.PT_GNU_EH_FRAME)
	if header == nil {
		return nil, fmt.Errorf(".eh_frame_hdr: %w", ErrNotFound)
	}
	const entry = 8 // bytes: where a function begins, and where its entry in .eh_frame is
	data, err := f.read(header.Off, header.Filesz, unwindFixed+entry*maxUnwind)
	if err != nil {
		return nil, fmt.Errorf(".eh_frame_hdr: %w", err)
	}
	if !bytes.HasPrefix(data, unwindEncodings) || len(data) < unwindFixed {
		return nil, fmt.Errorf(".eh_frame_hdr in an unusual encoding: %w", ErrNotFound)
	}
	count := uint64(binary.LittleEndian.Uint32(data[8:]))
	if data = data[unwindFixed:]; count > uint64(len(data))/entry {
		return nil, fmt.Errorf(".eh_frame_hdr: %d entries in %d bytes: %w", count, len(data), ErrMalformed)
	}
	s := &Starts{base: f.codeStart(), start: make([]uint32, 0, count)}
	for ; count > 0; count-- {
		at := header.Vaddr + uint64(int64(int32(binary.LittleEndian.Uint32(data))))
		data = data[entry:]
		if at >= s.base && at-s.base <= math.MaxUint32 {
			s.start = append(s.start, uint32(at-s.base))
		}
	}
	slices.Sort(s.start) // linkers sort them
	return s, nil
}

// Find returns the start of the function around addr. Padding after a function, and code without an
// entry, count as the function before it.
func (s *Starts) Find(addr uint64) (start uint64, ok bool) {
	if s == nil || addr < s.base || addr-s.base > math.MaxUint32 {
		return 0, false
	}
	offset := uint32(addr - s.base)
	after := sort.Search(len(s.start), func(i int) bool { return s.start[i] > offset })
	if after == 0 {
		return 0, false
	}
	return s.base + uint64(s.start[after-1]), true
}

// Bytes is the memory of the addresses.
func (s *Starts) Bytes() int64 {
	if s == nil {
		return 0
	}
	return int64(4 * len(s.start))
}

// Stripped reports whether the file has only the symbol table for dynamic linking, so that a file
// with debug information may have more names.
func (f *File) Stripped() bool {
	s := f.sectionTyped(elf.SHT_SYMTAB)
	return s == nil
}

// DebugLink returns the name of the file with this file's separated debug information, from
// .gnu_debuglink; "" if there is none. It is a name without a directory.
func (f *File) DebugLink() string {
	const longest = 256 // NAME_MAX and a NUL; a checksum follows
	s := f.sectionNamed(".gnu_debuglink")
	if s == nil {
		return ""
	}
	data, err := f.sectionData(s, longest+8)
	if err != nil {
		return ""
	}
	name, _, ok := bytes.Cut(data, []byte{0})
	if !ok || len(name) >= longest || bytes.ContainsAny(name, "/") || string(name) == "." || string(name) == ".." {
		return ""
	}
	return string(name)
}
