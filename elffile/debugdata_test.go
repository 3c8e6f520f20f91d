package elffile

import (
	"debug/elf"
	"testing"

	"github.com/ulikunitz/xz"

	"github.com/vmprof-agent/vmprof-agent/elffile/elftest"
)

func TestDebugDataSymbols(t *testing.T) {
	segments := []elf.Prog64{elftest.Code(0x1000, 0x1000, 0x100)}
	inner := elftest.Image{Machine: elf.EM_X86_64, Segments: segments, Sections: elftest.Symbols(elf.SHT_SYMTAB,
		elftest.Symbol{Name: "hidden", Value: 0x1040, Size: 0x10, Local: true})}
	outer := elftest.Image{Machine: elf.EM_X86_64, Segments: segments, Sections: append(elftest.Symbols(elf.SHT_DYNSYM,
		elftest.Symbol{Name: "exported", Value: 0x1000, Size: 0x20}),
		elftest.Section{Name: ".gnu_debugdata", Header: elf.Section64{Type: uint32(elf.SHT_PROGBITS)},
			Data: compress(t, inner.Bytes(), xz.WriterConfig{})})}
	f := open(t, outer)
	table, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for addr, want := range map[uint64]string{0x1000: "exported", 0x1040: "hidden"} {
		if i, ok := table.Find(addr); !ok || table.Name(i) != want {
			t.Errorf("%#x is not %s", addr, want)
		}
	}
	if found, err := f.FindSymbols("hidden"); err != nil || found["hidden"].Value != 0x1040 {
		t.Errorf("found %v, %v", found, err)
	}
}
