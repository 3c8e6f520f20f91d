package elffile

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"slices"
)

// TLSModuleSlot returns the address (of the file) of a word that holds the file's own TLS module id
// once the dynamic linker has relocated it: the target of a DTPMOD64 relocation. With the id, a
// reader of a thread's memory finds the thread's copy of a TLS variable: dtv[id] + the symbol's
// value (ELF Handling for Thread-Local Storage, section 3).
//
// A relocation with a symbol may be about a variable of another module, so only those without one
// count; compilers use them for variables that are local to the module. ErrNotFound if there is
// none: the file has no such variable, or reaches it in another way (initial-exec, TLS
// descriptors).
func (f *File) TLSModuleSlot() (vaddr uint64, err error) {
	var kind uint32
	switch f.machine {
	case elf.EM_X86_64:
		kind = uint32(elf.R_X86_64_DTPMOD64)
	case elf.EM_AARCH64:
		kind = uint32(elf.R_AARCH64_TLS_DTPMOD64)
	default:
		return 0, fmt.Errorf("TLS module slot on %v: %w", f.machine, ErrUnsupported)
	}
	found := false
	budget := uint64(maxRelocations) // budget for all sections: a crafted file may have many that name the same bytes
	for i := range f.sections {
		s := &f.sections[i]
		// Relocations that the dynamic linker applies are loaded with the file; others are left
		// over from linking.
		if elf.SectionType(s.Type) != elf.SHT_RELA || elf.SectionFlag(s.Flags)&elf.SHF_ALLOC == 0 {
			continue
		}
		const relaSize = 24 // Elf64_Rela of elf.h: offset, info, addend
		err := f.eachRecord(s, relaSize, budget, func(b []byte) bool {
			info := binary.LittleEndian.Uint64(b[8:])
			if elf.R_TYPE64(info) == kind && elf.R_SYM64(info) == 0 {
				vaddr, found = binary.LittleEndian.Uint64(b), true
			}
			return !found
		})
		if err != nil {
			return 0, fmt.Errorf("relocations: %w", err)
		}
		budget -= s.Size / relaSize
		if found {
			return vaddr, nil
		}
	}
	return 0, fmt.Errorf("TLS module slot: %w", ErrNotFound)
}

// A Pointer is a word of the loaded file that the dynamic linker sets to an address of the file.
type Pointer struct {
	At uint64 // where the word is
	To uint64 // the address
}

// Pointers returns the words that relocations without a symbol set (R_X86_64_RELATIVE), in the
// order of their addresses. Tables of functions and of texts consist of such words in libraries:
// their bytes in the file are not the addresses. ErrNotFound if there are none, which is also so
// where the linker packed them (DT_RELR); ErrTooLarge if there are more than real libraries have.
func (f *File) Pointers() ([]Pointer, error) {
	if f.machine != elf.EM_X86_64 {
		return nil, fmt.Errorf("pointers on %v: %w", f.machine, ErrUnsupported)
	}
	var pointers []Pointer
	budget := uint64(maxRelocations) // budget for all sections, as above
	for i := range f.sections {
		s := &f.sections[i]
		if elf.SectionType(s.Type) != elf.SHT_RELA || elf.SectionFlag(s.Flags)&elf.SHF_ALLOC == 0 {
			continue
		}
		const relaSize = 24
		err := f.eachRecord(s, relaSize, budget, func(b []byte) bool {
			if elf.R_TYPE64(binary.LittleEndian.Uint64(b[8:])) == uint32(elf.R_X86_64_RELATIVE) {
				pointers = append(pointers, Pointer{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[16:])})
			}
			return len(pointers) <= maxPointers
		})
		if err == nil && len(pointers) > maxPointers {
			err = fmt.Errorf("more than %d pointers: %w", maxPointers, ErrTooLarge)
		}
		if err != nil {
			return nil, fmt.Errorf("relocations: %w", err)
		}
		budget -= s.Size / relaSize
	}
	if len(pointers) == 0 {
		return nil, fmt.Errorf("relocated pointers: %w", ErrNotFound)
	}
	slices.SortFunc(pointers, func(a, b Pointer) int { return cmp.Compare(a.At, b.At) })
	return pointers, nil
}
