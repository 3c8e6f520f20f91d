package elffile

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/elffile/elftest"
)

func TestFunctionStarts(t *testing.T) {
	f, err := openBytes(unwound(0x3b, nil, Range{0x1000, 0x1018}, Range{0x1020, 0x1040}))
	if err != nil {
		t.Fatal(err)
	}
	starts, err := f.FunctionStarts()
	if err != nil || starts.Bytes() != 8 {
		t.Fatalf("%d bytes, %v", starts.Bytes(), err)
	}
	for addr, want := range map[uint64]uint64{0x1000: 0x1000, 0x1017: 0x1000, 0x101f: 0x1000, 0x1020: 0x1020,
		0x2fff: 0x1020} {
		if got, ok := starts.Find(addr); !ok || got != want {
			t.Errorf("%#x: %#x, %v, want %#x", addr, got, ok, want)
		}
	}
	for _, addr := range []uint64{0, 0xfff, math.MaxUint64} {
		if got, ok := starts.Find(addr); ok {
			t.Errorf("%#x: %#x", addr, got)
		}
	}
	if _, ok := (*Starts)(nil).Find(0x1000); ok {
		t.Error("of no file")
	}
	for name, test := range map[string]struct {
		change func([]byte)
		err    error
	}{
		"unusual encoding": {func(b []byte) { b[0x2003] = 0x3c }, ErrNotFound},
		"too many entries": {func(b []byte) { binary.LittleEndian.PutUint32(b[0x2008:], math.MaxUint32) },
			ErrMalformed},
	} {
		b := unwound(0x3b, nil, Range{0x1000, 0x1018})
		test.change(b)
		f, err := openBytes(b)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.FunctionStarts(); !errors.Is(err, test.err) {
			t.Errorf("%s: %v, want %v", name, err, test.err)
		}
	}
}

func FuzzFunctionStarts(f *testing.F) {
	f.Add(unwound(0x3b, nil, Range{0x1000, 0x1018}, Range{0x1020, 0x1040}), uint64(0x1010))
	f.Fuzz(func(t *testing.T, data []byte, addr uint64) {
		file, err := openBytes(data)
		if err != nil {
			return
		}
		file.DebugLink()
		starts, err := file.FunctionStarts()
		if (starts == nil) == (err == nil) {
			t.Fatalf("%v, %v", starts, err)
		}
		if start, ok := starts.Find(addr); ok && start > addr {
			t.Errorf("%#x begins at %#x", addr, start)
		}
	})
}

func TestDebugLink(t *testing.T) {
	for data, want := range map[string]string{
		"libz.so.1.debug\x00crc!": "libz.so.1.debug", "../../etc/passwd\x00crc!": "", "..\x00": "", "no end": "",
		"": "",
	} {
		f, err := openBytes(elftest.Image{Machine: elf.EM_X86_64, Sections: []elftest.Section{
			{Name: ".gnu_debuglink", Data: []byte(data), Header: elf.Section64{Type: uint32(elf.SHT_PROGBITS)}},
		}}.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if got := f.DebugLink(); got != want {
			t.Errorf("%q: %q, want %q", data, got, want)
		}
		if !f.Stripped() {
			t.Error("it has no symbols")
		}
	}
}

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
