// Package elffile reads what a profiler needs from ELF files that it does not trust: load segments,
// build ids, symbols, one kind of relocation, and USDT probes.
//
//	f, err := elffile.OpenFile(file)
//	bias, err := f.Bias(mapStart, mapOffset)    // one mapping of the file in a process
//	table, err := f.Symbols()                   // address -> name, compact
//	found, err := f.FindSymbols("gHotSpotVMStructs")
//	probes, err := f.Probes()
//
// The file may have been made by an attacker, and may change while it is read. So a number in the
// file is checked against the file's size and against a fixed limit (see limits.go) before memory
// is allocated from it. Every loop is bounded, and nothing is mapped into memory. The constants and
// struct layouts come from debug/elf, but not the reading: it builds a Go string per symbol, which
// costs about 100 bytes each.
//
// Only little-endian ELF64 is read: amd64 and arm64. What the package finds through section headers
// (symbols, relocations, probes) is absent from a file that has none; segments and the build id
// need only program headers.
package elffile

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// Errors that callers distinguish.
var (
	ErrNotELF      = errors.New("not an ELF file")
	ErrUnsupported = errors.New("only little-endian 64-bit ELF is supported")
	ErrMalformed   = errors.New("malformed ELF file")
	ErrTooLarge    = errors.New("table is larger than this agent reads")
	ErrNotFound    = errors.New("not in this ELF file")
)

// A File is an open ELF file. It keeps headers only, at most 64 bytes per section and 56 per
// segment; everything else is read from the io.ReaderAt on request. Several goroutines may use a
// File if they may use its reader.
type File struct {
	r        io.ReaderAt
	size     uint64 // bytes
	machine  elf.Machine
	progs    Segments
	sections []elf.Section64
	names    []byte // the section name string table
}

// Open reads the headers of an ELF file of size bytes. The caller keeps r open for as long as it
// uses the File, and closes it.
func Open(r io.ReaderAt, size int64) (*File, error) {
	if size < 0 {
		return nil, fmt.Errorf("file size %d: %w", size, ErrMalformed)
	}
	f := &File{r: r, size: uint64(size)}
	header, err := f.readHeader()
	if err != nil {
		return nil, err
	}
	f.machine = elf.Machine(header.Machine)
	if f.progs, err = readHeaders[elf.Prog64](f, header.Phoff, header.Phnum, header.Phentsize,
		maxSegments); err != nil {
		return nil, fmt.Errorf("program headers: %w", err)
	}
	if f.sections, err = readHeaders[elf.Section64](f, header.Shoff, header.Shnum, header.Shentsize,
		maxSections); err != nil {
		return nil, fmt.Errorf("section headers: %w", err)
	}
	if i := int(header.Shstrndx); i > 0 && i < len(f.sections) {
		if f.names, err = f.sectionData(&f.sections[i], maxSectionNames); err != nil {
			return nil, fmt.Errorf("section names: %w", err)
		}
	}
	return f, nil
}

// OpenFile is Open of a whole file.
func OpenFile(file *os.File) (*File, error) {
	st, err := file.Stat()
	if err != nil {
		return nil, err
	}
	return Open(file, st.Size())
}

// Machine is the instruction set of the file.
func (f *File) Machine() elf.Machine { return f.machine }

func (f *File) readHeader() (*elf.Header64, error) {
	var header elf.Header64
	size := uint64(binary.Size(header))
	ident, err := f.read(0, min(size, f.size), size)
	if err != nil {
		return nil, err
	}
	if len(ident) < elf.EI_NIDENT || !bytes.HasPrefix(ident, []byte(elf.ELFMAG)) {
		return nil, ErrNotELF
	}
	if elf.Class(ident[elf.EI_CLASS]) != elf.ELFCLASS64 || elf.Data(ident[elf.EI_DATA]) != elf.ELFDATA2LSB {
		return nil, ErrUnsupported
	}
	if _, err := binary.Decode(ident, binary.LittleEndian, &header); err != nil {
		return nil, fmt.Errorf("file header is cut short: %w", ErrMalformed)
	}
	return &header, nil
}

// readHeaders reads an array of count program or section headers. Extended numbering (a count that
// does not fit in 16 bits) is not followed: linked programs have a few dozen of either.
func readHeaders[T elf.Prog64 | elf.Section64](f *File, off uint64, count, entSize uint16, limit int) ([]T, error) {
	if off == 0 || count == 0 {
		return nil, nil
	}
	var one T
	size := binary.Size(one)
	if int(entSize) != size {
		return nil, fmt.Errorf("entry of %d bytes: %w", entSize, ErrMalformed)
	}
	if int(count) > limit {
		return nil, fmt.Errorf("%d entries: %w", count, ErrTooLarge)
	}
	data, err := f.read(off, uint64(count)*uint64(size), uint64(limit*size))
	if err != nil {
		return nil, err
	}
	headers := make([]T, count)
	_, err = binary.Decode(data, binary.LittleEndian, headers)
	return headers, err
}
