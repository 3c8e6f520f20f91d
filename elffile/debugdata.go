package elffile

import (
	"bytes"
	"fmt"
)

// debugSymtab opens the symbol table in .gnu_debugdata ("MiniDebugInfo" in GDB's manual): an xz
// stream of an ELF file with the .symtab entries that were stripped from the outer file.
func (f *File) debugSymtab() (*symbolSection, error) {
	const title = ".gnu_debugdata"
	s := f.sectionNamed(title)
	if s == nil {
		return nil, fmt.Errorf("%s: %w", title, ErrNotFound)
	}
	compressed, err := f.sectionData(s, maxDebugData)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", title, err)
	}
	plain, err := decompress(compressed)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", title, err)
	}
	inner, err := Open(bytes.NewReader(plain), int64(len(plain)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", title, err)
	}
	table, err := inner.symtab() // and not its .gnu_debugdata: there is one level, not a chain
	if err != nil {
		return nil, fmt.Errorf("%s: %w", title, err)
	}
	return table, nil
}
