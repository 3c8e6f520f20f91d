package pclntab

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/elffile"
	"github.com/vmprof-agent/vmprof-agent/elffile/elftest"
)

// A crafted program: main.f of 64 bytes at textAt, on lines 10 to 12, with main.g inlined into its
// bytes 16 to 31 at line 11.
const (
	base    = 0x10000 // address of the file's first byte
	tableAt = base + 64 + 56
	textAt  = base + 0x8000
)

// program returns the tables as the linker writes them.
func program() (table, module, tree []byte) {
	names := []byte("main.f\x00main.g\x00")
	units := elftest.Append(nil, []uint32{0})
	files := []byte("f.go\x00")
	values := []byte{0,
		22, 16, 19, 16, 22, 32, 0, // 1: lines 10, 0, 11
		2, 64, 0, // 8: file 0
		0, 16, 2, 16, 1, 32, 0, // 11: inlined: -1, 0, -1
		2, 16, 16, 48, 0, // 18: stack: 0, 8
	}
	function := elftest.Append(nil, []uint32{0, 0, 0, 0, 18, 8, 1, 3, 0, 10})
	function = append(function, 0, 0, 0, 4)
	function = elftest.Append(function, []uint32{0, 0, 11, ^uint32(0), ^uint32(0), ^uint32(0), 0})
	functions := elftest.Append(nil, []uint32{0, 12, 64})
	functions = append(functions, function...)

	table = elftest.Append(nil, uint32(magic120))
	table = append(table, 0, 0, 1, 8)
	parts := [][]byte{names, units, files, values, functions}
	header := []uint64{1, 1, 0}
	at := uint64(72)
	for _, part := range parts {
		header = append(header, at)
		at += uint64(len(part)+7) &^ 7
	}
	table = elftest.Append(table, header)
	for _, part := range parts {
		table = append(table, part...)
		table = append(table, make([]byte, -len(part)&7)...)
	}
	tree = elftest.Append(nil, []uint32{0, 7, 2, 20})
	words := make([]uint64, 48)
	words[moduleHeader], words[moduleNames], words[moduleText] = tableAt, tableAt+header[3], textAt
	words[40] = textAt // where zeros are
	words[44] = tableAt + uint64(len(table)+8*len(words))
	return table, elftest.Append(nil, words), tree
}

func image(table, module, tree []byte, more ...elftest.Section) elftest.Image {
	return elftest.Image{
		Machine:  elf.EM_X86_64,
		Segments: []elf.Prog64{elftest.Code(0, base, 0x10000)},
		Sections: append([]elftest.Section{
			{Name: ".gopclntab", Data: table, Header: elf.Section64{Type: uint32(elf.SHT_PROGBITS), Addr: tableAt}},
			{Name: ".go.module", Data: module, Header: elf.Section64{Type: uint32(elf.SHT_PROGBITS), Addr: tableAt +
				uint64(len(table))}},
			{Name: ".rodata", Data: tree},
		}, more...),
		Pad: 0x10000,
	}
}

func framesOf(image []byte, address uint64) ([]Frame, error) {
	f, err := elffile.Open(bytes.NewReader(image), int64(len(image)))
	if err != nil {
		return nil, err
	}
	table, err := Find(f)
	if err != nil {
		return nil, err
	}
	return table.Frames(bytes.NewReader(image), address)
}

var (
	outer  = Frame{"main.f", "f.go", 10, 10}
	within = []Frame{{"main.g", "f.go", 0, 20}, outer}
)

func TestFrames(t *testing.T) {
	table, module, tree := program()
	whole := image(table, module, tree).Bytes()
	for address, want := range map[uint64][]Frame{
		textAt - 1: nil, textAt: {outer}, textAt + 15: {outer}, textAt + 16: within, textAt + 31: within,
		textAt + 32: {{"main.f", "f.go", 11, 10}}, textAt + 63: {{"main.f", "f.go", 11, 10}}, textAt + 64: nil,
	} {
		if got, err := framesOf(whole, address); err != nil || !slices.Equal(got, want) {
			t.Errorf("%#x: %v, %v, want %v", address, got, err, want)
		}
	}
	f, _ := elffile.Open(bytes.NewReader(whole), int64(len(whole)))
	found, err := Find(f)
	if err != nil {
		t.Fatal(err)
	}
	for address, want := range map[uint64]int{textAt: 0, textAt + 15: 0, textAt + 16: 8} {
		if n, ok, err := found.StackBytes(bytes.NewReader(whole), address); n != want || !ok || err != nil {
			t.Errorf("%#x: %d bytes of stack, %v, %v, want %d", address, n, ok, err, want)
		}
	}
}

// The dynamic linker sets the addresses in a program that an external linker made
// position-independent.
func TestModuleOfRelocatedProgram(t *testing.T) {
	table, module, tree := program()
	var relocations []byte
	for i := 0; i < len(module); i += 8 {
		if to := binary.LittleEndian.Uint64(module[i:]); to != 0 {
			relocations = elftest.Append(relocations, elf.Rela64{Off: tableAt + uint64(len(table)+i),
				Info: elf.R_INFO(0, uint32(elf.R_X86_64_RELATIVE)), Addend: int64(to)})
		}
	}
	sections := elftest.Section{Name: ".rela.dyn", Data: relocations,
		Header: elf.Section64{Type: uint32(elf.SHT_RELA), Flags: uint64(elf.SHF_ALLOC), Entsize: 24}}
	if got, err := framesOf(image(table, make([]byte, len(module)), tree, sections).Bytes(), textAt+16); err != nil ||
		!slices.Equal(got, within) {
		t.Errorf("%v, %v, want %v", got, err, within)
	}
}

func TestMalformedTables(t *testing.T) {
	for name, change := range map[string]struct {
		change func(table, module, tree []byte)
		err    error
	}{
		"version":                  {func(b, _, _ []byte) { b[0] = 0xfb }, elffile.ErrNotFound},
		"no quantum":               {func(b, _, _ []byte) { b[6] = 0 }, elffile.ErrMalformed},
		"32-bit":                   {func(b, _, _ []byte) { b[7] = 4 }, elffile.ErrMalformed},
		"no functions":             {func(b, _, _ []byte) { b[8] = 0 }, elffile.ErrMalformed},
		"too many functions":       {func(b, _, _ []byte) { b[8+7] = 0xff }, elffile.ErrMalformed},
		"names outside":            {func(b, _, _ []byte) { b[32+7] = 0xff }, elffile.ErrMalformed},
		"more functions than room": {func(b, _, _ []byte) { b[9] = 1 }, elffile.ErrMalformed},
		"no module data":           {func(_, m, _ []byte) { m[0] = 0 }, elffile.ErrNotFound},
	} {
		table, module, tree := program()
		change.change(table, module, tree)
		if got, err := framesOf(image(table, module, tree).Bytes(), textAt+16); !errors.Is(err, change.err) {
			t.Errorf("%s: %v, %v, want %v", name, got, err, change.err)
		}
	}
	// Without trees that are right, functions and lines remain.
	table, module, tree := program()
	tree[4] = 8 // in the midst of a name
	if got, err := framesOf(image(table, module, tree).Bytes(), textAt+16); err != nil || len(got) != 1 ||
		got[0].Function != "main.f" {
		t.Errorf("wrong tree: %v, %v", got, err)
	}
	// A call that is inlined into itself.
	table, module, tree = program()
	tree[8] = 16
	if got, err := framesOf(image(table, module, tree).Bytes(), textAt+16); !errors.Is(err, elffile.ErrMalformed) {
		t.Errorf("endless tree: %v, %v", got, err)
	}
}

func FuzzFrames(f *testing.F) {
	table, module, tree := program()
	f.Add(table, module, tree, uint64(textAt+16))
	table = bytes.Clone(table)
	binary.LittleEndian.PutUint32(table, magic118)
	binary.LittleEndian.PutUint64(table[24:], textAt)
	f.Add(table, []byte{}, tree, uint64(textAt+16))
	f.Fuzz(func(t *testing.T, table, module, tree []byte, address uint64) {
		whole := image(table, module, tree).Bytes()
		elf, err := elffile.Open(bytes.NewReader(whole), int64(len(whole)))
		if err != nil {
			t.Skip()
		}
		found, err := Find(elf)
		if (found == nil) != (err != nil) {
			t.Fatalf("%v, %v", found, err)
		}
		if err != nil {
			return
		}
		if frames, err := found.Frames(bytes.NewReader(whole), address); err != nil && frames != nil {
			t.Fatalf("%v and %v", frames, err)
		}
		if n, ok, err := found.StackBytes(bytes.NewReader(whole), address); ok && (err != nil || n < 0) {
			t.Fatalf("%d, %v, %v", n, ok, err)
		}
	})
}
