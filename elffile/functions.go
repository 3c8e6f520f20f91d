package elffile

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
)

// Symbols returns a table of the file's code: functions, IFUNC resolvers, and the labels of
// hand-written assembly. Data is left out, as program counters never point there. Names are as the
// linker has them, mangled.
//
// The table is made from .symtab. For a stripped file it is made from .dynsym and .gnu_debugdata,
// the compressed ELF file in which some distributions keep the stripped function names. An
// unreadable source is skipped as long as another one has names. ErrNotFound if the file has no
// names at all.
func (f *File) Symbols() (*Table, error) {
	table, err := f.tableOf(f.symtab)
	if err == nil {
		return table, nil
	}
	table, fallbackErr := f.tableOf(f.dynsym, f.debugSymtab)
	if fallbackErr == nil {
		return table, nil
	}
	if !errors.Is(err, ErrNotFound) {
		return nil, err
	}
	return nil, fallbackErr
}

// tableOf merges those of the sources that can be read. With no name at all it returns the first
// source's reason.
func (f *File) tableOf(sources ...func() (*symbolSection, error)) (*Table, error) {
	builder := TableBuilder{Base: f.codeStart()}
	var failure error
	for _, open := range sources {
		source, err := open()
		if err == nil {
			err = f.addCode(&builder, source)
		}
		if err != nil && (failure == nil || errors.Is(failure, ErrNotFound)) {
			failure = err
		}
	}
	if err := f.addEnds(&builder); err != nil {
		return nil, err
	}
	table := builder.Build()
	switch {
	case table.Len() > 0:
		return table, nil
	case failure != nil:
		return nil, failure
	default:
		return nil, fmt.Errorf("function symbols: %w", ErrNotFound)
	}
}

// addCode adds the code symbols of source. When the builder is full, it keeps what it has: some of
// the names are better than none.
func (f *File) addCode(builder *TableBuilder, source *symbolSection) error {
	builder.expect(int(min(source.section.Size/elf.Sym64Size, maxSymbols)), len(source.names))
	var full error
	err := source.each(func(sym *elf.Sym64) bool {
		end, inSegment := f.codeEnd(sym.Value)
		if !inSegment || !defined(sym) {
			return true
		}
		name := cString(source.names, sym.Name)
		if !isCode(sym, name, source) {
			return true
		}
		full = builder.Add(sym.Value, min(sym.Size, end-sym.Value), name, preference(sym))
		return full == nil
	})
	return errors.Join(err, full)
}

func isCode(sym *elf.Sym64, name []byte, source *symbolSection) bool {
	switch elf.ST_TYPE(sym.Info) {
	case elf.STT_FUNC, elf.STT_GNU_IFUNC:
		return true
	case elf.STT_NOTYPE:
		// $x and $d are arm64's marks for code and data, .L begins a compiler's own labels.
		return source.inCode(sym) && !bytes.HasPrefix(name, []byte("$")) && !bytes.HasPrefix(name, []byte(".L"))
	default:
		return false
	}
}

// preference prefers, among aliases, the one with a size, then a function, then one that other
// files can see. Weak ones are as good as global ones: libc's write is a weak alias of __write.
func preference(sym *elf.Sym64) (p Preference) {
	if sym.Size > 0 {
		p |= 4
	}
	if elf.ST_TYPE(sym.Info) != elf.STT_NOTYPE {
		p |= 2
	}
	if elf.ST_BIND(sym.Info) != elf.STB_LOCAL {
		p |= 1
	}
	return p
}

// addEnds marks where code ends, for symbols without a size.
func (f *File) addEnds(builder *TableBuilder) error {
	for i := range f.sections {
		if s := &f.sections[i]; elf.SectionFlag(s.Flags)&elf.SHF_EXECINSTR != 0 {
			if err := builder.End(s.Addr + s.Size); err != nil {
				return err
			}
		}
	}
	for i := range f.progs {
		if p := &f.progs[i]; elf.ProgType(p.Type) == elf.PT_LOAD && executable(p) {
			if err := builder.End(p.Vaddr + p.Memsz); err != nil {
				return err
			}
		}
	}
	return nil
}

// codeStart is the lowest address of code: the base of the table.
func (f *File) codeStart() uint64 {
	start, found := uint64(0), false
	for i := range f.progs {
		p := &f.progs[i]
		if elf.ProgType(p.Type) == elf.PT_LOAD && executable(p) && (!found || p.Vaddr < start) {
			start, found = p.Vaddr, true
		}
	}
	return start
}
