package symbolize

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/elffile/elftest"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// withID is a file with a build id and these sections.
func withID(id byte, sections ...elftest.Section) []byte {
	return elftest.Image{
		Machine: elf.EM_X86_64, Segments: []elf.Prog64{elftest.Code(0x1000, 0x1000, 0x100)}, Pad: 0x1100,
		Sections: append(sections, elftest.Section{Name: ".note.gnu.build-id",
			Data:   elftest.Note("GNU", 3, []byte{0xca, id}),
			Header: elf.Section64{Type: uint32(elf.SHT_NOTE)}}),
	}.Bytes()
}

// A stripped file gets the names of the debug file with its build id, and of no other file at the
// same place.
func TestDebugFiles(t *testing.T) {
	link := elftest.Section{Name: ".gnu_debuglink", Data: []byte("libz.debug\x00\x00crc!"),
		Header: elf.Section64{Type: uint32(elf.SHT_PROGBITS)}}
	symtab := elftest.Symbols(elf.SHT_SYMTAB, elftest.Symbol{Name: "inflate", Value: 0x1000, Size: 0x20})
	stripped := withID(0xfe, link)
	for _, test := range []struct {
		name  string
		files map[string][]byte
		want  string
	}{
		{"by build id", map[string][]byte{"/usr/lib/debug/.build-id/ca/fe.debug": withID(0xfe, symtab...)}, "inflate"},
		{"by link", map[string][]byte{"/lib/.debug/libz.debug": withID(0xfe, symtab...)}, "inflate"},
		{"by link in the debug directory", map[string][]byte{"/usr/lib/debug/lib/libz.debug": withID(0xfe, symtab...)},
			"inflate"},
		{"another build id first", map[string][]byte{"/usr/lib/debug/.build-id/ca/fe.debug": withID(0xff, symtab...),
			"/lib/libz.debug": withID(0xfe, symtab...)}, "inflate"},
		{"another build id", map[string][]byte{"/lib/libz.debug": withID(0xff, symtab...)}, ""},
		{"stripped, too", map[string][]byte{"/lib/libz.debug": withID(0xfe)}, ""},
		{"garbage", map[string][]byte{"/lib/libz.debug": []byte("\x7fELF")}, ""},
		{"none", nil, ""},
	} {
		dir := t.TempDir()
		debug := DebugFiles{Path: "/lib/libz.so.1", Open: func(path string) []*os.File {
			data, ok := test.files[path]
			if !ok {
				return nil
			}
			name := filepath.Join(dir, "file")
			if err := os.WriteFile(name, data, 0o600); err != nil {
				t.Fatal(err)
			}
			f, err := os.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			return []*os.File{f}
		}}
		o, err := readObject(bytes.NewReader(stripped), int64(len(stripped)), debug)
		if err != nil {
			t.Fatal(err)
		}
		o.names = new(nameCache)
		if name, _ := o.Lookup(0x1010); name.Function != test.want {
			t.Errorf("%s: %q, want %q", test.name, name.Function, test.want)
		}
	}
	if got := (DebugFiles{Path: "/lib/x"}).paths("", "c"); len(got) != 0 {
		t.Errorf("%q", got)
	}
	if got := (DebugFiles{Path: "/lib/x"}).paths("x.debug", "cafe"); !slices.Contains(got, "/lib/x.debug") ||
		len(got) != 4 {
		t.Errorf("%q", got)
	}
}

// If a debug file's symbols do not fit in the cache, the file keeps its own.
func TestLargeDebugFile(t *testing.T) {
	var large []elftest.Symbol
	for i := range 0x100 {
		large = append(large, elftest.Symbol{Name: fmt.Sprintf("internal_%0100d", i), Value: 0x1000 + uint64(i),
			Size: 1})
	}
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	own := write("own", withID(0xfe, elftest.Symbols(elf.SHT_DYNSYM,
		elftest.Symbol{Name: "inflate", Value: 0x1000, Size: 0x20})...))
	debug := write("debug", withID(0xfe, elftest.Symbols(elf.SHT_SYMTAB, large...)...))
	for limit, want := range map[int64]string{4 << 10: "inflate", 1 << 20: large[0].Name} {
		o, err := NewFiles(limit).GetWithDebug(FileKey{BuildID: "x"}, func() (*os.File, error) { return os.Open(own) },
			DebugFiles{Open: func(string) []*os.File {
				f, err := os.Open(debug)
				if err != nil {
					t.Fatal(err)
				}
				return []*os.File{f}
			}})
		if err != nil {
			t.Fatal(err)
		}
		if name, _ := o.Lookup(0x1000); name.Function != want {
			t.Errorf("limit %d: %q, want %q", limit, name.Function, want)
		}
	}
}

func TestIsUnknown(t *testing.T) {
	for name, want := range map[string]bool{symbol.Unknown: true,
		symbol.UnknownAt("/lib/libz.so.1 (deleted)", 0x1000): true, "[unknown libz.so.1+0x1000]": true, "main": false,
		"[unknown caller]": false, "": false, "[unknown]x": false} {
		if symbol.IsUnknown(name) != want {
			t.Errorf("%q", name)
		}
	}
}
