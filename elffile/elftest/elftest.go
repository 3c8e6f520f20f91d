// Package elftest makes small ELF files for tests, right or deliberately wrong.
//
//	image := elftest.Image{
//		Machine:  elf.EM_X86_64,
//		Segments: []elf.Prog64{elftest.Code(0x1000, 0x1000, 0x100)},
//		Sections: elftest.Symbols(elf.SHT_SYMTAB, elftest.Symbol{Name: "main", Value: 0x1000, Size: 16}),
//	}
//	f, err := elffile.Open(bytes.NewReader(image.Bytes()), ...)
package elftest

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
)

// An Image describes an ELF64 file. Where a header states a size or an offset, tests may state
// another.
type Image struct {
	Machine  elf.Machine
	Segments []elf.Prog64
	Sections []Section // without the null section and the section names, which Bytes adds
	Pad      int       // extend the file with zeros to at least this many bytes, so that segments lie in it
}

// A Section is one section and its content.
type Section struct {
	Name   string
	Data   []byte
	Link   string        // the section whose index goes into Header.Link, if not empty
	Header elf.Section64 // Type, Flags, Addr and Entsize; Bytes fills in Name, Off and Link, and Size unless it is set
}

// Code is an executable load segment of size bytes at file offset off and address vaddr.
func Code(off, vaddr, size uint64) elf.Prog64 {
	return elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Off: off, Vaddr: vaddr,
		Filesz: size, Memsz: size, Align: 0x1000}
}

// Data is a writable load segment with bss bytes after the size bytes of the file.
func Data(off, vaddr, size, bss uint64) elf.Prog64 {
	return elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_W), Off: off, Vaddr: vaddr,
		Filesz: size, Memsz: size + bss, Align: 0x1000}
}

// A Symbol is one entry of a symbol table. The zero Type, Bind and Section mean a global function
// that is defined.
type Symbol struct {
	Name        string
	Value, Size uint64
	Type        elf.SymType
	Bind        elf.SymBind
	Section     elf.SectionIndex
	Untyped     bool // STT_NOTYPE, which Type cannot say
	Local       bool // STB_LOCAL, which Bind cannot say
	Undefined   bool // SHN_UNDEF, which Section cannot say
}

// Symbols makes a symbol table of that type, and its string table.
func Symbols(t elf.SectionType, symbols ...Symbol) []Section {
	names := []byte{0}
	table := make([]byte, elf.Sym64Size)
	for _, s := range symbols {
		if s.Type == 0 && !s.Untyped {
			s.Type = elf.STT_FUNC
		}
		if s.Bind == 0 && !s.Local {
			s.Bind = elf.STB_GLOBAL
		}
		if s.Section == 0 && !s.Undefined {
			s.Section = elf.SHN_ABS
		}
		table = Append(table, elf.Sym64{Name: uint32(len(names)), Info: elf.ST_INFO(s.Bind, s.Type),
			Shndx: uint16(s.Section), Value: s.Value, Size: s.Size})
		names = append(append(names, s.Name...), 0)
	}
	title, strings := ".symtab", ".strtab"
	if t == elf.SHT_DYNSYM {
		title, strings = ".dynsym", ".dynstr"
	}
	return []Section{
		{Name: title, Data: table, Link: strings, Header: elf.Section64{Type: uint32(t), Entsize: elf.Sym64Size}},
		{Name: strings, Data: names, Header: elf.Section64{Type: uint32(elf.SHT_STRTAB)}},
	}
}

// Note is one note with its padding.
func Note(owner string, kind uint32, desc []byte) []byte {
	b := Append(nil, []uint32{uint32(len(owner) + 1), uint32(len(desc)), kind})
	b = align(append(append(b, owner...), 0), 4)
	return align(append(b, desc...), 4)
}

// Probe is a USDT note.
func Probe(provider, name, args string, location, base, semaphore uint64) []byte {
	desc := Append(nil, []uint64{location, base, semaphore})
	for _, s := range []string{provider, name, args} {
		desc = append(append(desc, s...), 0)
	}
	return Note("stapsdt", 3, desc)
}

// Bytes lays the file out: file header, program headers, contents at multiples of eight, section
// headers.
func (m Image) Bytes() []byte {
	sections := append([]Section{{}}, m.Sections...)
	sections = append(sections, Section{Name: ".shstrtab", Header: elf.Section64{Type: uint32(elf.SHT_STRTAB)}})
	names, last := []byte{0}, len(sections)-1
	for i := range sections {
		sections[i].Header.Name = uint32(len(names))
		names = append(append(names, sections[i].Name...), 0)
		for j := range sections {
			if link := sections[i].Link; link != "" && sections[j].Name == link {
				sections[i].Header.Link = uint32(j)
			}
		}
	}
	sections[last].Data = names

	header := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB),
			byte(elf.EV_CURRENT)},
		Type:    uint16(elf.ET_DYN),
		Machine: uint16(m.Machine), Version: uint32(elf.EV_CURRENT),
		Ehsize: 64, Phentsize: 56, Shentsize: 64,
		Phnum: uint16(len(m.Segments)), Shnum: uint16(len(sections)), Shstrndx: uint16(last),
	}
	if len(m.Segments) > 0 {
		header.Phoff = uint64(header.Ehsize)
	}
	body := Append(nil, m.Segments)
	for i := range sections {
		body = align(body, 8)
		h := &sections[i].Header
		h.Off = uint64(header.Ehsize) + uint64(len(body))
		if h.Size == 0 {
			h.Size = uint64(len(sections[i].Data))
		}
		body = append(body, sections[i].Data...)
	}
	if short := m.Pad - int(header.Ehsize) - len(body); short > 0 {
		body = append(body, make([]byte, short)...)
	}
	body = align(body, 8)
	header.Shoff = uint64(header.Ehsize) + uint64(len(body))
	for i := range sections {
		body = Append(body, sections[i].Header)
	}
	return append(Append(nil, header), body...)
}

// Append appends the little-endian encoding of v, a fixed-size value or a slice of such.
func Append(b []byte, v any) []byte {
	b, err := binary.Append(b, binary.LittleEndian, v)
	if err != nil {
		panic(err) // a mistake in the test, not in the file
	}
	return b
}

func align(b []byte, n int) []byte { return append(b, bytes.Repeat([]byte{0}, -len(b)&(n-1))...) }
