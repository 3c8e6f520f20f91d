package elffile

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"slices"
)

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
