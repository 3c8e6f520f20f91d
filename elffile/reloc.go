package elffile

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
)

// TLSModuleSlot returns the address (of the file) of a word that holds the file's own TLS module id once the dynamic
// linker has relocated it: the target of a DTPMOD64 relocation. With the id, a reader of a thread's memory finds the
// thread's copy of a TLS variable: dtv[id] + the symbol's value (ELF Handling for Thread-Local Storage, section 3).
//
// A relocation with a symbol may be about a variable of another module, so only those without one count; compilers
// use them for variables that are local to the module. ErrNotFound if there is none: the file has no such variable,
// or reaches it in another way (initial-exec, TLS descriptors).
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
	budget := uint64(maxRelocations) // of all sections: a crafted file may have many that name the same bytes
	for i := range f.sections {
		s := &f.sections[i]
		// Relocations that the dynamic linker applies are loaded with the file; others are left over from linking.
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
