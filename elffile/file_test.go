package elffile

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/elffile/elftest"
)

// fixture is a file that has one of everything: code at 0x1000, data at 0x2100 of which the file
// has offset 0x1100.
func fixture() elftest.Image {
	image := elftest.Image{
		Machine:  elf.EM_X86_64,
		Segments: []elf.Prog64{elftest.Code(0x1000, 0x1000, 0x100), elftest.Data(0x1100, 0x2100, 0x40, 0x40)},
		Pad:      0x1140,
	}
	image.Sections = slices.Concat(
		elftest.Symbols(elf.SHT_DYNSYM,
			elftest.Symbol{Name: "imported", Undefined: true},
			elftest.Symbol{Name: "exported", Value: 0x1000, Size: 0x20},
		),
		elftest.Symbols(elf.SHT_SYMTAB,
			elftest.Symbol{Name: "exported", Value: 0x1000, Size: 0x20},
			elftest.Symbol{Name: "hidden", Value: 0x1020, Size: 0x20, Local: true},
			elftest.Symbol{Name: "counter", Value: 0x2100, Size: 8, Type: elf.STT_OBJECT},
			elftest.Symbol{Name: "current", Value: 0x20, Size: 8, Type: elf.STT_TLS, Local: true},
		),
		[]elftest.Section{
			{Name: ".note.gnu.build-id", Data: elftest.Note("GNU", noteGNUBuildID, []byte{0xca, 0xfe, 1}),
				Header: elf.Section64{Type: uint32(elf.SHT_NOTE)}},
			{Name: ".stapsdt.base", Data: []byte{0}, Header: elf.Section64{Type: uint32(elf.SHT_PROGBITS),
				Addr: 0x3000}},
			{Name: ".note.stapsdt", Header: elf.Section64{Type: uint32(elf.SHT_NOTE)}, Data: slices.Concat(
				elftest.Probe("vm", "start", "8@%rdi -4@-8(%rbp)", 0x1010, 0x3000, 0),
				elftest.Probe("vm", "stop", "", 0x1020, 0x3000, 0x2110),
			)},
			{Name: ".rela.dyn", Header: elf.Section64{Type: uint32(elf.SHT_RELA), Flags: uint64(elf.SHF_ALLOC),
				Entsize: 24},
				Data: elftest.Append(nil, []elf.Rela64{
					{Off: 0x2100, Info: elf.R_INFO(0, uint32(elf.R_X86_64_RELATIVE))},
					{Off: 0x2108, Info: elf.R_INFO(1, uint32(elf.R_X86_64_DTPMOD64))}, // module ID of another module
					{Off: 0x2110, Info: elf.R_INFO(0, uint32(elf.R_X86_64_DTPMOD64))},
				})},
		},
	)
	return image
}

// open opens an image that must be right.
func open(t testing.TB, image elftest.Image) *File {
	t.Helper()
	f, err := openBytes(image.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func openBytes(data []byte) (*File, error) { return Open(bytes.NewReader(data), int64(len(data))) }

func TestOpen(t *testing.T) {
	f := open(t, fixture())
	if f.Machine() != elf.EM_X86_64 {
		t.Errorf("machine %v", f.Machine())
	}
	if id := f.BuildID(); id != "cafe01" {
		t.Errorf("build id %q", id)
	}
}

func TestOpenRefuses(t *testing.T) {
	good := fixture().Bytes()
	patch := func(at int, b ...byte) []byte {
		data := slices.Clone(good)
		copy(data[at:], b)
		return data
	}
	// Offsets are those of Elf64_Ehdr.
	for _, test := range []struct {
		name string
		data []byte
		want error
	}{
		{"empty", nil, ErrNotELF},
		{"script", []byte("#!/bin/sh\nexit 1\n"), ErrNotELF},
		{"cut in the header", good[:40], ErrMalformed},
		{"32 bits", patch(elf.EI_CLASS, byte(elf.ELFCLASS32)), ErrUnsupported},
		{"big-endian", patch(elf.EI_DATA, byte(elf.ELFDATA2MSB)), ErrUnsupported},
		{"program headers past the end", patch(32, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), ErrMalformed},
		{"section headers past the end", patch(40, 0, 0, 0, 0, 0, 0, 0, 0x80), ErrMalformed},
		{"odd program header size", patch(54, 1, 0), ErrMalformed},
		{"too many program headers", patch(56, 0xff, 0xff), ErrTooLarge},
		{"odd section header size", patch(58, 1, 0), ErrMalformed},
		{"too many section headers", patch(60, 0xff, 0xff), ErrTooLarge},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, err := openBytes(test.data)
			if f != nil || !errors.Is(err, test.want) {
				t.Errorf("Open = %v, %v, want %v", f, err, test.want)
			}
		})
	}
}

// A file that shrinks while it is read is an error, not a short result.
func TestShrinkingFile(t *testing.T) {
	data := fixture().Bytes()
	if _, err := Open(bytes.NewReader(data[:len(data)-1]), int64(len(data))); !errors.Is(err, ErrMalformed) {
		t.Errorf("error %v, want %v", err, ErrMalformed)
	}
}

// FuzzOpen calls every method on a file of arbitrary bytes. Each result is a value or an error, and
// a table is never larger than the file permits.
func FuzzOpen(f *testing.F) {
	good := fixture().Bytes()
	f.Add(good)
	for _, at := range []int{32, 40, 56, 60} { // offsets and counts of the file header
		bad := slices.Clone(good)
		binary.LittleEndian.PutUint16(bad[at:], 0xfff0)
		f.Add(bad)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := openBytes(data)
		if (file == nil) == (err == nil) {
			t.Fatalf("file %v and error %v", file, err)
		}
		if err != nil {
			return
		}
		table, err := file.Symbols()
		if (table == nil) == (err == nil) {
			t.Fatalf("table %v and error %v", table, err)
		}
		if table != nil {
			checkTable(t, table)
			if limit := int64(8*len(data) + 4*maxName); table.Bytes() > limit {
				t.Errorf("table of %d bytes from a file of %d", table.Bytes(), len(data))
			}
		}
		found, err := file.FindSymbols("exported", "current")
		if (found == nil) == (err == nil) {
			t.Errorf("symbols %v and error %v", found, err)
		}
		if probes, err := file.Probes(); err != nil && probes != nil {
			t.Errorf("probes and error %v", err)
		}
		if slot, err := file.TLSModuleSlot(); err != nil && slot != 0 {
			t.Errorf("slot %#x and error %v", slot, err)
		}
		if bias, err := file.Bias(0x7f0000001000, 0x1000); err != nil && bias != 0 {
			t.Errorf("bias %#x and error %v", bias, err)
		}
		const inside = 0x1010
		if r, err := file.FunctionAround(inside); (r == Range{}) == (err == nil) || err == nil &&
			(inside < r.Start || inside >= r.End) {
			t.Errorf("function around %#x: %+v and error %v", inside, r, err)
		}
		if id := file.BuildID(); len(id) > 2*maxBuildID {
			t.Errorf("build id of %d digits", len(id))
		}
	})
}
