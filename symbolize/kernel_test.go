package symbolize

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"unique"

	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

const kallsyms = `0000000000000000 A fixed_percpu_data
ffffffff81000000 T _stext
ffffffff81000000 T _text
ffffffff81000040 t __pfx_do_one_initcall
ffffffff81000050 T do_one_initcall
ffffffff81000100 W abort
ffffffff81000200 D jiffies
ffffffff81000300 T last_function
ffffffff81400000 T _etext
ffffffffc0201000 t ext4_read	[ext4]
ffffffffc0200000 t ext4_write	[ext4]
ffffffffc0300000 t _RNvCs1_4rust3run	[rust_minimal]
`

func TestKernelLookup(t *testing.T) {
	k, err := ReadKallsyms(strings.NewReader(kallsyms), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		addr         uint64
		name, module string
	}{
		{0, "", ""},
		{0xffffffff80ffffff, "", ""},
		{0xffffffff81000010, "_text", ""},
		{0xffffffff81000048, "", ""}, // padding
		{0xffffffff81000050, "do_one_initcall", ""},
		{0xffffffff810000ff, "do_one_initcall", ""},
		{0xffffffff810001ff, "abort", ""},
		{0xffffffff81000200, "", ""}, // data
		{0xffffffff810fffff, "last_function", ""},
		{0xffffffff81200000, "", ""}, // longer than any function
		{0xffffffff81400000, "", ""},
		{0xffffffffc0200fff, "ext4_write", "ext4"},
		{0xffffffffc0201000, "ext4_read", "ext4"},
		{0xffffffffffffffff, "", ""},
	} {
		name, module, ok := k.Lookup(test.addr)
		if name != test.name || module != test.module || ok != (test.name != "") {
			t.Errorf("%#x is %q of %q (%t), want %q of %q", test.addr, name, module, ok, test.name, test.module)
		}
	}
}

func TestKernelFind(t *testing.T) {
	k, err := ReadKallsyms(strings.NewReader(kallsyms), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	found := k.Find("do_one_initcall", "last_function", "ext4_read", "jiffies", "no_such_function")
	want := map[string][2]uint64{
		"do_one_initcall": {0xffffffff81000050, 0xffffffff81000100},
		"last_function":   {0xffffffff81000300, 0xffffffff81000300 + maxKernelFunction}, // the next one is far away
	}
	if !maps.Equal(found, want) {
		t.Errorf("found %#x, want %#x", found, want)
	}
	if none := (*Kernel)(nil).Find("abort"); len(none) != 0 {
		t.Errorf("found %#x without symbols", none)
	}
}

func TestKernelFrame(t *testing.T) {
	k, err := ReadKallsyms(strings.NewReader(kallsyms), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		kernel                    *Kernel
		addr                      uint64
		function, system, mapping string
	}{
		{k, 0xffffffff81000150, "abort", "abort", "[kernel]"},
		{k, 0xffffffffc0201000, "ext4_read", "ext4_read", "[ext4]"},
		{k, 0xffffffffc0300010, "rust::run", "_RNvCs1_4rust3run", "[rust_minimal]"},
		{k, 0xffffffff90000000, symbol.Unknown, "", "[kernel]"},
		{nil, 0xffffffff81000150, symbol.Unknown, "", "[kernel]"},
	} {
		want := symbol.Frame{Function: test.function, SystemName: test.system, Kind: symbol.KindKernel,
			Address: test.addr,
			Mapping: unique.Make(symbol.Mapping{File: test.mapping})}
		if got := test.kernel.Frame(test.addr); got != want {
			t.Errorf("%#x: %+v, want %+v", test.addr, got, want)
		}
	}
	if k = nil; k.Len() != 0 {
		t.Error("a nil kernel has symbols")
	}
}

// A symbol is that of the frame, however often it is asked for.
func TestKernelSymbol(t *testing.T) {
	k, err := ReadKallsyms(strings.NewReader(kallsyms), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for _, addr := range []uint64{0, 0xffffffff81000010, 0xffffffff81000050, 0xffffffffc0201000} {
			want := k.Frame(addr)
			if s, known := k.Symbol(addr); s.Value() != want || known != (want.Function != symbol.Unknown) {
				t.Errorf("%#x is %+v (%v), want %+v", addr, s.Value(), known, want)
			}
		}
	}
	if len(k.symbols.known) != 3 || len(k.With(nil).symbols.known) != 0 {
		t.Errorf("%d symbols are kept, and %d with other code", len(k.symbols.known), len(k.With(nil).symbols.known))
	}
	for addr := uint64(0xffffffff81000300); addr < 0xffffffff81000300+2*maxKernelSymbols; addr++ {
		k.Symbol(addr)
	}
	if n := len(k.symbols.known); n > maxKernelSymbols {
		t.Errorf("%d symbols are kept", n)
	}
	if s, known := (*Kernel)(nil).Symbol(7); known || s.Function() != symbol.Unknown {
		t.Errorf("without a kernel: %v", s.Value())
	}
}

func TestReadKallsymsRefuses(t *testing.T) {
	for name, input := range map[string]string{
		"empty":            "",
		"no type":          "ffffffff81000000 _text\n",
		"no name":          "ffffffff81000000 T \n",
		"no address":       "text T text\n",
		"address too long": "1ffffffff81000000 T text\n",
		"long line":        "ffffffff81000000 T " + strings.Repeat("x", maxKallsymsLine) + "\n",
		"very long line":   "ffffffff81000000 T " + strings.Repeat("x", 1<<20) + "\n",
		"only data":        "ffffffff81000000 D data\n",
	} {
		if k, err := ReadKallsyms(strings.NewReader(input), nil, nil); k != nil || err == nil {
			t.Errorf("%s: %v, %v, want an error", name, k, err)
		} else if errors.Is(err, ErrKernelHidden) {
			t.Errorf("%s: %v", name, err)
		}
	}
	hidden := "0000000000000000 T _text\n0000000000000000 t run\t[module]\n"
	_, err := ReadKallsyms(strings.NewReader(hidden), nil, nil)
	if !errors.Is(err, ErrKernelHidden) {
		t.Errorf("hidden addresses: %v, want %v", err, ErrKernelHidden)
	}
	for _, remedy := range []string{"CAP_SYSLOG", "kernel.kptr_restrict"} {
		if !strings.Contains(fmt.Sprint(err), remedy) {
			t.Errorf("%q does not name %s", err, remedy)
		}
	}
}

// liveKallsyms is the machine's own, with its addresses.
func liveKallsyms(t testing.TB) []byte {
	t.Helper()
	data, err := os.ReadFile("/proc/kallsyms")
	if err == nil {
		_, err = ReadKallsyms(bytes.NewReader(data), nil, new(Loaded))
	}
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	return data
}

// TestLiveKallsyms looks up every function of the running kernel at its start.
func TestLiveKallsyms(t *testing.T) {
	data := liveKallsyms(t)
	k, err := ReadKallsyms(bytes.NewReader(data), nil, new(Loaded))
	if err != nil {
		t.Fatal(err)
	}
	at := map[uint64]map[string]bool{}
	for line := range bytes.Lines(data) {
		addr, kind, name, err := parseKallsyms(bytes.TrimSuffix(line, []byte("\n")))
		if err != nil {
			t.Fatal(err)
		}
		if addr != 0 && isKernelFunction(kind, name) {
			if at[addr] == nil {
				at[addr] = map[string]bool{}
			}
			at[addr][string(name)] = true
		}
	}
	for addr, names := range at {
		name, module, ok := k.Lookup(addr)
		if module != "" {
			name += "\t[" + module + "]"
		}
		if !ok || !names[name] {
			t.Fatalf("%#x is %q, want one of %v", addr, name, names)
		}
	}
	t.Logf("%d functions in %d bytes, %d each", k.Len(), k.table.Bytes(), k.table.Bytes()/int64(k.Len()))
}

// FuzzKallsyms reads arbitrary lines: a kernel or an error, and no symbol without a name.
func FuzzKallsyms(f *testing.F) {
	f.Add([]byte(kallsyms))
	f.Add([]byte("0000000000000000 T _text\n"))
	f.Add([]byte("ffffffffffffffff t x\t[\n0000000000000001 t \xff\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		k, err := ReadKallsyms(bytes.NewReader(data), nil, new(Loaded))
		if (k == nil) == (err == nil) {
			t.Fatalf("kernel %v and error %v", k, err)
		}
		if k == nil {
			return
		}
		if k.table.Bytes() > int64(12*len(data)) {
			t.Errorf("%d bytes from an input of %d", k.table.Bytes(), len(data))
		}
		for _, addr := range []uint64{0, 1, 0xffffffff81000050, 1<<64 - 1} {
			frame := k.Frame(addr)
			checkClean(t, frame.Function)
			checkClean(t, frame.Mapping.Value().File)
		}
	})
}

func BenchmarkKallsyms(b *testing.B) {
	data := liveKallsyms(b)
	b.Run("read", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			k, err := ReadKallsyms(bytes.NewReader(data), nil, new(Loaded))
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(k.table.Bytes()), "B/table")
		}
	})
	b.Run("readProc", func(b *testing.B) { // as the agent does: most of it is the kernel's work
		for b.Loop() {
			file, err := os.Open("/proc/kallsyms")
			if err != nil {
				b.Fatal(err)
			}
			if _, err := ReadKallsyms(file, nil, nil); err != nil {
				b.Fatal(err)
			}
			file.Close()
		}
	})
	b.Run("lookup1000", func(b *testing.B) {
		k, err := ReadKallsyms(bytes.NewReader(data), nil, new(Loaded))
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			for i := range 1000 {
				if _, _, ok := k.Lookup(k.table.Start(i * k.Len() / 1000)); !ok {
					b.Fatalf("function %d is not found", i)
				}
			}
		}
	})
}
