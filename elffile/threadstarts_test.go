package elffile

import (
	"debug/elf"
	"os"
	"slices"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/elffile/elftest"
)

// In a C library, a function that ends a thread in a loop is at the bottom of its stack.
func TestThreadStarts(t *testing.T) {
	loop := []byte{0x31, 0xff, 0x89, 0xd0, 0x0f, 0x05, 0xeb, 0xf8}
	for symbol, want := range map[string][]uint64{"__libc_start_main": {0x1020}, "main": nil} {
		b := unwound(0x3b, []elftest.Symbol{{Name: symbol, Value: 0x1000, Size: 0x10}}, Range{0x1000, 0x1018},
			Range{0x1020, 0x1040}, Range{0x1040, 0x1060})
		copy(b[0x1028:], loop)
		copy(b[0x1030:], loop)
		copy(b[0x1044:], loop[4:]) // another loop
		f, err := openBytes(b)
		if err != nil {
			t.Fatal(err)
		}
		starts, err := f.FunctionStarts()
		if err != nil {
			t.Fatal(err)
		}
		if got := f.ThreadStarts(starts); !slices.Equal(got, want) {
			t.Errorf("with %s: %#x, want %#x", symbol, got, want)
		}
		if got := f.ThreadStarts(nil); got != nil {
			t.Errorf("without functions: %#x", got)
		}
	}
}

// The machine's own C library has both.
func TestThreadStartsOfLibc(t *testing.T) {
	file, err := os.Open("/lib/x86_64-linux-gnu/libc.so.6")
	if err != nil {
		t.Skip(err)
	}
	defer file.Close()
	f, err := OpenFile(file)
	if err != nil || f.Machine() != elf.EM_X86_64 {
		t.Fatal(err)
	}
	functions, err := f.FunctionStarts()
	if err != nil {
		t.Fatal(err)
	}
	if got := f.ThreadStarts(functions); len(got) != 2 {
		t.Errorf("%#x", got)
	}
}
