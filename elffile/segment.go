package elffile

import (
	"debug/elf"
	"fmt"
)

// Page sizes that a kernel may map a segment with: 4 KiB on amd64, up to 64 KiB on arm64.
const (
	minPage = 4 << 10
	maxPage = 64 << 10
)

// Segments are the program headers of a file: at most maxSegments times 56 bytes, which remain
// usable after the file is closed.
type Segments []elf.Prog64

// Segments returns the file's program headers.
func (f *File) Segments() Segments { return f.progs }

// Bias is Segments().Bias.
func (f *File) Bias(mapStart, mapOffset uint64) (uint64, error) {
	return f.progs.Bias(mapStart, mapOffset)
}

// Bias returns the load bias of the file in a process: what must be added to an address of the file
// to get one of the process. mapStart and mapOffset are those of one mapping of the file, as
// /proc/PID/maps has them (addresses and bytes). ErrNotFound if no load segment can be mapped so.
//
// One page of a file can belong to the end of one segment and the start of the next, and is then
// mapped twice. The executable segment is meant in that case, as code is what is looked up: give a
// mapping that has code.
func (s Segments) Bias(mapStart, mapOffset uint64) (uint64, error) {
	var best *elf.Prog64
	for i := range s {
		p := &s[i]
		if elf.ProgType(p.Type) != elf.PT_LOAD || !mappedFrom(p, mapOffset) {
			continue
		}
		// Segments come in ascending order, so that of two equals the later one starts nearer to
		// the mapping.
		if best == nil || executable(p) || !executable(best) {
			best = p
		}
	}
	if best == nil {
		return 0, fmt.Errorf("no load segment covers file offset %#x: %w", mapOffset, ErrNotFound)
	}
	// The mapping's first byte is at mapOffset - Off from the segment's, which may be a page's part
	// before it. All of this is modulo 2^64, as the bias itself may be negative.
	return mapStart - (best.Vaddr + mapOffset - best.Off), nil
}

// mappedFrom reports whether a mapping at offset can be of p: offset lies in p's part of the file,
// or in the page that p starts in.
func mappedFrom(p *elf.Prog64, offset uint64) bool {
	page := uint64(minPage)
	for page < p.Align && page < maxPage {
		page *= 2
	}
	return offset >= p.Off&^(page-1) && (offset < p.Off || offset-p.Off < p.Filesz)
}

// AddressToOffset converts an address of the file to the offset of its byte in the file. It returns
// false if no byte of the file is loaded at that address: outside of the segments, and in .bss.
func (f *File) AddressToOffset(vaddr uint64) (offset uint64, ok bool) {
	for i := range f.progs {
		p := &f.progs[i]
		if elf.ProgType(p.Type) == elf.PT_LOAD && vaddr >= p.Vaddr && vaddr-p.Vaddr < p.Filesz {
			offset = p.Off + (vaddr - p.Vaddr)
			return offset, f.holds(offset, 1)
		}
	}
	return 0, false
}

// OffsetToAddress is the inverse of AddressToOffset; where two segments share the byte, the
// executable one counts.
func (f *File) OffsetToAddress(offset uint64) (vaddr uint64, ok bool) {
	for i := range f.progs {
		p := &f.progs[i]
		if elf.ProgType(p.Type) != elf.PT_LOAD || offset < p.Off || offset-p.Off >= p.Filesz || ok && !executable(p) {
			continue
		}
		vaddr, ok = p.Vaddr+(offset-p.Off), true
	}
	return vaddr, ok
}

func executable(p *elf.Prog64) bool { return elf.ProgFlag(p.Flags)&elf.PF_X != 0 }

// codeEnd returns the end of the executable segment that holds vaddr, or false.
func (f *File) codeEnd(vaddr uint64) (end uint64, ok bool) {
	for i := range f.progs {
		p := &f.progs[i]
		if elf.ProgType(p.Type) == elf.PT_LOAD && executable(p) && vaddr >= p.Vaddr && vaddr-p.Vaddr < p.Memsz {
			end = p.Vaddr + p.Memsz
			return end, end > vaddr // not a segment that wraps around
		}
	}
	return 0, false
}
