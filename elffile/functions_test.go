package elffile

import (
	"debug/elf"
	"errors"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/elffile/elftest"
)

func TestSymbols(t *testing.T) {
	text := elftest.Section{Name: ".text", Header: elf.Section64{Type: uint32(elf.SHT_NOBITS),
		Flags: uint64(elf.SHF_ALLOC | elf.SHF_EXECINSTR), Addr: 0x1000, Size: 0xc0}}
	image := elftest.Image{
		Machine:  elf.EM_AARCH64,
		Segments: []elf.Prog64{elftest.Code(0x1000, 0x1000, 0x100), elftest.Data(0x1100, 0x2100, 0x40, 0)},
		Sections: append([]elftest.Section{text}, elftest.Symbols(elf.SHT_SYMTAB,
			elftest.Symbol{Name: "function", Value: 0x1000, Size: 0x20, Section: 1},
			elftest.Symbol{Name: "resolver", Value: 0x1020, Size: 0x20, Section: 1, Type: elf.STT_GNU_IFUNC},
			elftest.Symbol{Name: "label", Value: 0x1040, Section: 1, Untyped: true},
			elftest.Symbol{Name: "$x", Value: 0x1060, Section: 1, Untyped: true},
			elftest.Symbol{Name: ".L3", Value: 0x1070, Section: 1, Untyped: true},
			elftest.Symbol{Name: "absolute", Value: 0x1080, Untyped: true},
			elftest.Symbol{Name: "object", Value: 0x1090, Size: 8, Type: elf.STT_OBJECT, Section: 1},
			elftest.Symbol{Name: "data", Value: 0x2100, Size: 8, Section: 1},
			elftest.Symbol{Name: "import", Value: 0x1000, Undefined: true},
			elftest.Symbol{Name: "endless", Value: 0x10f0, Size: 1 << 40, Section: 1},
		)...),
	}
	table, err := open(t, image).Symbols()
	if err != nil {
		t.Fatal(err)
	}
	checkTable(t, table)
	for addr, want := range map[uint64]string{
		0x1000: "function", 0x1020: "resolver", 0x1040: "label", 0x1065: "label", 0x10bf: "label",
		0x10c0: "", // past the end of .text
		0x10ff: "endless", 0x1100: "", 0x2100: "",
	} {
		got := ""
		if i, ok := table.Find(addr); ok {
			got = table.Name(i)
		}
		if got != want {
			t.Errorf("%#x is %q, want %q", addr, got, want)
		}
	}
	if table.Len() != 4 {
		t.Errorf("%d symbols, want 4", table.Len())
	}
}

func TestSymbolsOfStrippedFile(t *testing.T) {
	image := elftest.Image{Segments: []elf.Prog64{elftest.Code(0, 0x1000, 0x100)}}
	if table, err := open(t, image).Symbols(); table != nil || !errors.Is(err, ErrNotFound) {
		t.Errorf("Symbols = %v, %v, want %v", table, err, ErrNotFound)
	}
	image.Sections = elftest.Symbols(elf.SHT_DYNSYM, elftest.Symbol{Name: "only", Value: 0x1000, Size: 1})
	if table, err := open(t, image).Symbols(); err != nil || table.Len() != 1 {
		t.Errorf("Symbols = %v, %v, want one", table, err)
	}
}
