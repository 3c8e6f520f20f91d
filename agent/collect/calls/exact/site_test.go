package exact

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/elffile"
)

func TestCheap(t *testing.T) {
	for _, test := range []struct {
		name string
		code []byte
		skip int
		ok   bool
	}{
		{"push rbp", []byte{0x55, 0x48, 0x89, 0xe5, 0x41}, 0, true},
		{"push r14", []byte{0x41, 0x56, 0x48, 0x89, 0xe5}, 0, true},
		{"nop", []byte{0x90, 0x55, 0x48, 0x89, 0xe5}, 0, true},
		{"nop of five bytes", []byte{0x0f, 0x1f, 0x44, 0x00, 0x00}, 0, true},
		{"endbr64, push rbp", []byte{0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5, 0x41}, 4, true},
		{"endbr64, mov", []byte{0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x89, 0xe5, 0x41, 0x56}, 4, false},
		{"sub rsp", []byte{0x48, 0x83, 0xec, 0x08, 0x55}, 0, false},
		{"movss, with the prefix of endbr64", []byte{0xf3, 0x0f, 0x10, 0x45, 0xf8}, 0, false},
		{"cut", []byte{0x55}, 0, false},
		{"nothing", nil, 0, false},
	} {
		skip, ok := cheap(test.code)
		if ok != test.ok || ok && skip != test.skip {
			t.Errorf("%s: %d, %v", test.name, skip, ok)
		}
	}
}

func FuzzCheap(f *testing.F) {
	f.Add([]byte{0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5, 0x41})
	f.Fuzz(func(t *testing.T, code []byte) {
		if skip, ok := cheap(code); ok && (skip < 0 || skip >= len(code)) {
			t.Fatalf("%d bytes before an instruction in %d", skip, len(code))
		}
	})
}

// Every JVM of this machine has the sites where the symbols say.
func TestFindSites(t *testing.T) {
	libs, _ := filepath.Glob("/usr/lib/jvm/*/lib/server/libjvm.so")
	if len(libs) == 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("no JDK")
		}
		t.Skip("no JDK")
	}
	for _, path := range libs {
		file, text := open(t, path)
		sites, err := FindSites(file, text)
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
		if sites.Entry == 0 || sites.Return == 0 || sites.Entry == sites.Return {
			t.Errorf("%s: sites %+v", path, sites)
		}
	}
}

// A file without the symbols is refused, and the error names them.
func TestFindSitesMissing(t *testing.T) {
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file, text := open(t, path)
	if _, err := FindSites(file, text); err == nil || !strings.Contains(err.Error(), "SharedRuntime") {
		t.Errorf("got %v", err)
	}
}

func open(t *testing.T, path string) (*elffile.File, *os.File) {
	t.Helper()
	text, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { text.Close() })
	info, err := text.Stat()
	if err != nil {
		t.Fatal(err)
	}
	file, err := elffile.Open(text, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	return file, text
}

type flags map[string]bool

func (f flags) Flag(name string) (bool, error) {
	on, ok := f[name]
	if !ok {
		return false, errors.New("no such flag")
	}
	return on, nil
}

func TestCheck(t *testing.T) {
	if err := Check(flags{Flag: true}); err != nil {
		t.Error(err)
	}
	if err := Check(flags{Flag: false}); !errors.Is(err, ErrFlag) ||
		!strings.Contains(err.Error(), "-XX:+DTraceMethodProbes") {
		t.Errorf("got %v", err)
	}
	if err := Check(flags{}); err == nil || errors.Is(err, ErrFlag) {
		t.Errorf("got %v", err)
	}
}
