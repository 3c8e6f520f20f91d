package elffile

import (
	"debug/elf"
	"fmt"
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
