package elffile

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
)

// A Symbol is a defined symbol of the file.
type Symbol struct {
	Value uint64      // an address of the file; for a TLS symbol, bytes from the start of the module's TLS block
	Size  uint64      // bytes, 0 if unknown
	Type  elf.SymType // STT_FUNC, STT_OBJECT, STT_TLS, ...
}

// FindSymbols returns those of the named symbols that the file defines: it searches .dynsym, then
// .symtab, then .gnu_debugdata, as far as needed. A name that the file lacks is absent from the
// result. An error means that a table which might have a missing name could not be read; then there
// is no result.
//
// Only the requested names become Go strings: ten names of libjvm.so (58,000 symbols) take its
// string table for a moment (2.7 MB) and a few milliseconds.
func (f *File) FindSymbols(names ...string) (map[string]Symbol, error) {
	missing := make(map[string]bool, len(names))
	for _, name := range names {
		missing[name] = true
	}
	found := make(map[string]Symbol, len(names))
	search := func(table *symbolSection) error {
		return table.each(func(sym *elf.Sym64) bool {
			if !defined(sym) || sym.Name == 0 {
				return true
			}
			name := cString(table.names, sym.Name)
			if !missing[string(name)] { // the conversion does not allocate
				return true
			}
			delete(missing, string(name))
			found[string(name)] = Symbol{Value: sym.Value, Size: sym.Size, Type: elf.ST_TYPE(sym.Info)}
			return len(missing) > 0
		})
	}
	for _, source := range []func() (*symbolSection, error){f.dynsym, f.symtab, f.debugSymtab} {
		if len(missing) == 0 {
			break
		}
		table, err := source()
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err == nil {
			err = search(table)
		}
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// defined reports whether the file itself has the symbol, and does not import it.
func defined(sym *elf.Sym64) bool { return elf.SectionIndex(sym.Shndx) != elf.SHN_UNDEF }

// A symbolSection is a symbol table with its string table in memory.
type symbolSection struct {
	file    *File
	section *elf.Section64
	names   []byte
}

func (f *File) dynsym() (*symbolSection, error) { return f.symbolSection(elf.SHT_DYNSYM, ".dynsym") }
func (f *File) symtab() (*symbolSection, error) { return f.symbolSection(elf.SHT_SYMTAB, ".symtab") }

func (f *File) symbolSection(t elf.SectionType, title string) (*symbolSection, error) {
	s := f.sectionTyped(t)
	if s == nil {
		return nil, fmt.Errorf("%s: %w", title, ErrNotFound)
	}
	if uint64(s.Link) >= uint64(len(f.sections)) {
		return nil, fmt.Errorf("%s: string table is section %d of %d: %w", title, s.Link, len(f.sections), ErrMalformed)
	}
	names, err := f.sectionData(&f.sections[s.Link], maxNameBytes)
	if err != nil {
		return nil, fmt.Errorf("%s: string table: %w", title, err)
	}
	return &symbolSection{file: f, section: s, names: names}, nil
}

// each calls visit for every symbol until it returns false. The symbol is overwritten between
// calls.
func (t *symbolSection) each(visit func(*elf.Sym64) bool) error {
	var sym elf.Sym64
	err := t.file.eachRecord(t.section, elf.Sym64Size, maxSymbols, func(b []byte) bool {
		// Layout: Elf64_Sym of elf.h. By hand, as encoding/binary takes a second for a million of
		// them.
		sym.Name = binary.LittleEndian.Uint32(b)
		sym.Info, sym.Other = b[4], b[5]
		sym.Shndx = binary.LittleEndian.Uint16(b[6:])
		sym.Value = binary.LittleEndian.Uint64(b[8:])
		sym.Size = binary.LittleEndian.Uint64(b[16:])
		return visit(&sym)
	})
	if err != nil {
		return fmt.Errorf("symbols: %w", err)
	}
	return nil
}

// inCode reports whether sym is in a section that holds code. Symbols without a type are labels of
// hand-written assembly there, and names of anything elsewhere.
func (t *symbolSection) inCode(sym *elf.Sym64) bool {
	i := int(sym.Shndx)
	return i < len(t.file.sections) && elf.SectionFlag(t.file.sections[i].Flags)&elf.SHF_EXECINSTR != 0
}
