package elffile

import (
	"debug/elf"
	"errors"
	"maps"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/elffile/elftest"
)

func TestFindSymbols(t *testing.T) {
	f := open(t, fixture())
	got, err := f.FindSymbols("exported", "imported", "current", "counter", "absent")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]Symbol{
		"exported": {Value: 0x1000, Size: 0x20, Type: elf.STT_FUNC},
		"current":  {Value: 0x20, Size: 8, Type: elf.STT_TLS},
		"counter":  {Value: 0x2100, Size: 8, Type: elf.STT_OBJECT},
	}
	if !maps.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
}

func TestFindSymbolsOfBrokenTables(t *testing.T) {
	for name, spoil := range map[string]func(*elftest.Section){
		"entry size":        func(s *elftest.Section) { s.Header.Entsize = 16 },
		"past the end":      func(s *elftest.Section) { s.Header.Size = 1 << 20 / 24 * 24 },
		"too many":          func(s *elftest.Section) { s.Header.Size = 24 << 40 },
		"size wraps around": func(s *elftest.Section) { s.Header.Size = 1<<64 - 16 },
		"no string table":   func(s *elftest.Section) { s.Link = "" },
	} {
		t.Run(name, func(t *testing.T) {
			image := fixture()
			for i := range image.Sections {
				if image.Sections[i].Name == ".symtab" {
					spoil(&image.Sections[i])
				}
			}
			f := open(t, image)
			// What .dynsym has is found before .symtab is looked at.
			if got, err := f.FindSymbols("exported"); err != nil || len(got) != 1 {
				t.Errorf("exported: %v, %v", got, err)
			}
			got, err := f.FindSymbols("hidden")
			if name == "no string table" {
				// Section 0 is linked then, which is empty: every name is empty.
				if err != nil || len(got) != 0 {
					t.Errorf("hidden: %v, %v, want nothing", got, err)
				}
			} else if got != nil || !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrTooLarge) {
				t.Errorf("hidden: %v, %v, want an error", got, err)
			}
			// The exported functions keep their names.
			table, err := f.Symbols()
			if err != nil {
				t.Fatal(err)
			}
			if i, ok := table.Find(0x1010); !ok || table.Name(i) != "exported" {
				t.Errorf("0x1010 is %d, %t in a table of %d", i, ok, table.Len())
			}
		})
	}
}
