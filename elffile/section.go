package elffile

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// An Extent is where the content of a section is.
type Extent struct {
	Address uint64 // virtual address, as the file has it
	Offset  uint64 // offset in the file
	Size    uint64 // bytes
}

// Section returns the first section of that name. ErrNotFound if there is none, or none with
// content that is in the file as it is in memory.
func (f *File) Section(name string) (Extent, error) {
	s := f.sectionNamed(name)
	if s == nil || elf.SectionType(s.Type) == elf.SHT_NOBITS || elf.SectionFlag(s.Flags)&elf.SHF_COMPRESSED != 0 {
		return Extent{}, fmt.Errorf("section %s: %w", name, ErrNotFound)
	}
	if !f.holds(s.Off, s.Size) {
		return Extent{}, fmt.Errorf("section %s passes the end of the file: %w", name, ErrMalformed)
	}
	return Extent{s.Addr, s.Off, s.Size}, nil
}

// ReadLoaded fills p with what is loaded at an address of the file. ErrMalformed if the file has no
// such bytes.
func (f *File) ReadLoaded(p []byte, vaddr uint64) error {
	offset, ok := f.AddressToOffset(vaddr)
	if !ok || !f.holds(offset, uint64(len(p))) {
		return fmt.Errorf("%d bytes at address %#x are not in the file: %w", len(p), vaddr, ErrMalformed)
	}
	return f.readFull(p, offset)
}

// read returns size bytes at off, after checking that the file has them and that they are no more
// than limit.
func (f *File) read(off, size, limit uint64) ([]byte, error) {
	if size > limit {
		return nil, fmt.Errorf("%d bytes: %w", size, ErrTooLarge)
	}
	if !f.holds(off, size) {
		return nil, fmt.Errorf("%d bytes at offset %#x pass the end of the file: %w", size, off, ErrMalformed)
	}
	data := make([]byte, size)
	if err := f.readFull(data, off); err != nil {
		return nil, err
	}
	return data, nil
}

// holds reports whether the file has size bytes at off; neither sum can overflow.
func (f *File) holds(off, size uint64) bool { return off <= f.size && size <= f.size-off }

// readFull fills p from off, which the caller has checked with holds.
func (f *File) readFull(p []byte, off uint64) error {
	n, err := f.r.ReadAt(p, int64(off))
	if n == len(p) {
		return nil // ReadAt may give io.EOF together with the last bytes
	}
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("file shrank while it was read: %w", ErrMalformed)
	}
	return fmt.Errorf("read %d bytes at offset %#x: %w", len(p), off, err)
}

// sectionNamed returns the first section of that name, or nil.
func (f *File) sectionNamed(name string) *elf.Section64 {
	for i := range f.sections {
		if s := &f.sections[i]; bytes.Equal(cString(f.names, s.Name), []byte(name)) {
			return s
		}
	}
	return nil
}

// sectionTyped returns the first section of that type, or nil. It is used for symbol tables: a file
// has one of each.
func (f *File) sectionTyped(t elf.SectionType) *elf.Section64 {
	for i := range f.sections {
		if s := &f.sections[i]; elf.SectionType(s.Type) == t {
			return s
		}
	}
	return nil
}

// sectionData returns the content of s as it is in the file.
func (f *File) sectionData(s *elf.Section64, limit uint64) ([]byte, error) {
	if elf.SectionType(s.Type) == elf.SHT_NOBITS {
		return nil, fmt.Errorf("section has no content: %w", ErrMalformed)
	}
	if elf.SectionFlag(s.Flags)&elf.SHF_COMPRESSED != 0 {
		return nil, fmt.Errorf("section is compressed: %w", ErrUnsupported)
	}
	return f.read(s.Off, s.Size, limit)
}

// eachRecord streams the records of size bytes of s to visit, which must not keep them, until visit
// says false. It needs chunkSize bytes however long the section is.
func (f *File) eachRecord(s *elf.Section64, size, limit uint64, visit func(record []byte) bool) error {
	if elf.SectionType(s.Type) == elf.SHT_NOBITS {
		return nil
	}
	count := s.Size / size
	if s.Entsize != size {
		return fmt.Errorf("entry of %d bytes: %w", s.Entsize, ErrMalformed)
	}
	if count > limit {
		return fmt.Errorf("%d entries: %w", count, ErrTooLarge)
	}
	if !f.holds(s.Off, s.Size) {
		return fmt.Errorf("%d entries at offset %#x pass the end of the file: %w", count, s.Off, ErrMalformed)
	}
	buf := make([]byte, min(count*size, chunkSize/size*size))
	for off, left := s.Off, count*size; left > 0; {
		chunk := buf[:min(left, uint64(len(buf)))]
		if err := f.readFull(chunk, off); err != nil {
			return err
		}
		off, left = off+uint64(len(chunk)), left-uint64(len(chunk))
		for ; len(chunk) > 0; chunk = chunk[size:] {
			if !visit(chunk[:size]) {
				return nil
			}
		}
	}
	return nil
}

// cString returns the NUL-terminated string at off in a string table, cut at maxName bytes. It is
// empty where the offset is out of range. The cap keeps a table without NULs from costing its whole
// length per symbol.
func cString(table []byte, off uint32) []byte {
	if uint64(off) >= uint64(len(table)) {
		return nil
	}
	s := table[off:]
	s = s[:min(len(s), maxName)]
	if end := bytes.IndexByte(s, 0); end >= 0 {
		return s[:end]
	}
	return s
}

// Needs reports whether the dynamic linker loads one of these libraries with the file.
func (f *File) Needs(libraries ...string) (bool, error) {
	s := f.sectionTyped(elf.SHT_DYNAMIC)
	if s == nil || s.Link == 0 || int(s.Link) >= len(f.sections) {
		return false, fmt.Errorf("dynamic section: %w", ErrNotFound)
	}
	names, err := f.sectionData(&f.sections[s.Link], maxNameBytes)
	if err != nil {
		return false, fmt.Errorf("names of the dynamic section: %w", err)
	}
	const dynSize = 16 // Elf64_Dyn of elf.h: tag, value
	found := false
	err = f.eachRecord(s, dynSize, maxDynamic, func(b []byte) bool {
		tag, value := elf.DynTag(binary.LittleEndian.Uint64(b)), binary.LittleEndian.Uint64(b[8:])
		if tag == elf.DT_NEEDED && value < uint64(len(names)) {
			found = slices.Contains(libraries, string(cString(names, uint32(value))))
		}
		return tag != elf.DT_NULL && !found
	})
	if err != nil {
		return false, fmt.Errorf("dynamic section: %w", err)
	}
	return found, nil
}
