package probesite

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/vmprof-agent/vmprof-agent/elffile"
)

// branchBytes is the length of a call or jmp with 32 bits of distance.
const branchBytes = 5

// scan returns the addresses of all bytes in the file's code that would call one of the functions or jump to it, wherever
// instructions begin. In 20 MB of anything else four bytes are right by chance once in 200 times.
func (f *Finder) scan(targets []function) ([]uint64, error) {
	var found []uint64
	total := uint64(0)
	for _, p := range f.file.Segments() {
		if elf.ProgType(p.Type) != elf.PT_LOAD || elf.ProgFlag(p.Flags)&elf.PF_X == 0 {
			continue
		}
		if total += p.Filesz; total > maxCode || p.Filesz > maxCode {
			return nil, fmt.Errorf("more than %d bytes of code: %w", maxCode, elffile.ErrTooLarge)
		}
		var err error
		if found, err = f.scanSegment(found, p.Off, p.Vaddr, p.Filesz, targets); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// scanSegment scans size bytes at an offset of the file, which are loaded at addr. Chunks overlap by what one branch
// has beyond its first byte.
func (f *Finder) scanSegment(found []uint64, offset, addr, size uint64, targets []function) ([]uint64, error) {
	buffer := make([]byte, min(size, scanChunk))
	for at := uint64(0); at+branchBytes <= size; {
		chunk := buffer[:min(uint64(len(buffer)), size-at)]
		n, err := f.bytes.ReadAt(chunk, int64(offset+at))
		if n < len(chunk) {
			if errors.Is(err, io.EOF) {
				err = elffile.ErrMalformed
			}
			return nil, fmt.Errorf("read code at offset %#x: %w", offset+at, err)
		}
		for _, t := range targets {
			if t.role == cold {
				continue
			}
			found = branchesTo(found, chunk, addr+at, t.start)
			if len(found) > maxCandidates {
				return nil, fmt.Errorf("more than %d branches: %w", maxCandidates, elffile.ErrTooLarge)
			}
		}
		if uint64(len(chunk)) == size-at {
			break
		}
		at += uint64(len(chunk)) - (branchBytes - 1)
	}
	return found, nil
}

// branchesTo appends the addresses of what would be a call or jmp to target.
func branchesTo(found []uint64, code []byte, addr, target uint64) []uint64 {
	// The distance counts from behind the branch: what is added to it is the same for all but grows with the place.
	distance := uint32(target - addr - branchBytes)
	for at := 0; at+branchBytes <= len(code); at++ {
		if binary.LittleEndian.Uint32(code[at+1:]) != distance-uint32(at) {
			continue
		}
		if code[at] != 0xe8 && code[at] != 0xe9 {
			continue
		}
		if addr+uint64(at)+branchBytes+uint64(int64(int32(distance-uint32(at)))) == target {
			found = append(found, addr+uint64(at))
		}
	}
	return found
}
