package symbolize

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unique"

	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

func TestObjectFrame(t *testing.T) {
	o, err := NewFiles(1<<20).GetBytes(FileKey{}, image("_ZN10JavaThread3runEv"))
	if err != nil {
		t.Fatal(err)
	}
	m := symbol.Mapping{File: "/lib/libjvm.so", Start: 0x7f0000001000, Limit: 0x7f0000002000, Offset: 0x1000}
	known := m
	known.BuildID = "cafe"
	replaced := m
	replaced.Offset = 0x9000
	for _, test := range []struct {
		name             string
		object           *Object
		mapping          symbol.Mapping
		addr             uint64
		function, system string
		want             symbol.Mapping
	}{
		{"function", o, m, 0x7f0000001010, "JavaThread::run()", "_ZN10JavaThread3runEv", known},
		{"past the function", o, m, 0x7f0000001020, symbol.Unknown, "", known},
		{"past the mapping", o, m, 0x7f0000002000, symbol.Unknown, "", known},
		{"before the mapping", o, m, 0x7f0000000fff, symbol.Unknown, "", known},
		{"offset that the file does not load", o, replaced, 0x7f0000001010, symbol.Unknown, "",
			symbol.Mapping{File: m.File, BuildID: "cafe", Start: m.Start, Limit: m.Limit, Offset: 0x9000}},
		{"no file", nil, symbol.Mapping{File: "[anon:x\n]"}, 0x7f0000001010, symbol.Unknown, "",
			symbol.Mapping{File: `[anon:x\n]`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			want := symbol.Frame{Function: test.function, SystemName: test.system, Kind: symbol.KindNative,
				Address: test.addr,
				Mapping: unique.Make(test.want)}
			if got := test.object.Frame(test.mapping, test.addr); got != want {
				t.Errorf("%+v in %+v, want %+v in %+v", got, got.Mapping.Value(), want, test.want)
			}
		})
	}
}

// machineFile returns a library that the machine must have where CI=true.
func machineFile(t testing.TB, what string, patterns ...string) string {
	t.Helper()
	for _, pattern := range patterns {
		if paths, _ := filepath.Glob(pattern); len(paths) > 0 {
			return paths[0]
		}
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("no %s", what)
	}
	t.Skipf("no %s on this machine", what)
	return ""
}

func libc(t testing.TB) string {
	return machineFile(t, "libc.so.6", "/lib/*-linux-gnu/libc.so.6", "/lib64/libc.so.6")
}

func libjvm(t testing.TB) string {
	return machineFile(t, "libjvm.so of JDK 17", "/usr/lib/jvm/*17*/lib/server/libjvm.so")
}

// mapped returns a file as it would be mapped at base, its executable segment only, and the file's
// object.
func mapped(t testing.TB, path string, base uint64) (symbol.Mapping, *Object) {
	t.Helper()
	file, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	o, err := NewFiles(64<<20).Get(FileKey{}, func() (*os.File, error) { return os.Open(path) })
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range file.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 {
			down := p.Vaddr % 4096
			return symbol.Mapping{File: path, Start: base + p.Vaddr - down, Limit: base + p.Vaddr + p.Filesz,
				Offset: p.Off - down}, o
		}
	}
	t.Fatalf("%s has no code", path)
	return symbol.Mapping{}, nil
}

// TestLibc names exported functions of libc; Debian's has only .dynsym.
func TestLibc(t *testing.T) {
	path := libc(t)
	file, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	symbols, err := file.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	const base = 0x7f1234560000
	m, o := mapped(t, path, base)
	for _, name := range []string{"malloc", "write", "memcpy", "qsort", "getenv"} {
		i := slices.IndexFunc(symbols, func(s elf.Symbol) bool { return s.Name == name && s.Section != elf.SHN_UNDEF })
		if i < 0 {
			t.Errorf("libc has no %s", name)
			continue
		}
		frame := o.Frame(m, base+symbols[i].Value+1)
		if frame.Function != name || frame.Mapping.Value().BuildID == "" {
			t.Errorf("%s is %+v in %+v", name, frame, frame.Mapping.Value())
		}
	}
}

// TestLibjvm names functions by their symbols, as a profile shows them.
func TestLibjvm(t *testing.T) {
	path := libjvm(t)
	const base = 0x7f1234560000
	m, o := mapped(t, path, base)
	if o.table == nil {
		t.Skip("libjvm has no symbols")
	}
	file, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	symbols, err := file.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for symbol, want := range map[string]string{
		"_ZN10JavaThread3runEv":            "JavaThread::run()",
		"_ZL19thread_native_entryP6Thread": "thread_native_entry(Thread*)",
		"JNI_CreateJavaVM":                 "JNI_CreateJavaVM",
	} {
		i := slices.IndexFunc(symbols, func(s elf.Symbol) bool { return s.Name == symbol })
		if i < 0 {
			t.Errorf("libjvm has no %s", symbol)
			continue
		}
		frame := o.Frame(m, base+symbols[i].Value+symbols[i].Size/2)
		if frame.Function != want || frame.SystemName != symbol {
			t.Errorf("%s is %+v", symbol, frame)
		}
	}
}

// TestVDSO names the kernel's code in this process, which is in no file.
func TestVDSO(t *testing.T) {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	var m symbol.Mapping
	for line := range strings.Lines(string(maps)) {
		if strings.HasSuffix(line, "[vdso]\n") {
			if _, err := fmt.Sscanf(line, "%x-%x", &m.Start, &m.Limit); err != nil {
				t.Fatal(err)
			}
			m.File = "[vdso]"
		}
	}
	if m.File == "" {
		t.Skip("this process has no vDSO")
	}
	memory, err := os.Open("/proc/self/mem")
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	image := make([]byte, m.Limit-m.Start)
	if _, err := memory.ReadAt(image, int64(m.Start)); err != nil {
		t.Fatal(err)
	}
	o, err := NewFiles(1<<20).GetBytes(FileKey{BuildID: "[vdso]"}, image)
	if err != nil {
		t.Fatal(err)
	}
	file, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		t.Fatal(err)
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		if elf.ST_TYPE(s.Info) != elf.STT_FUNC || !strings.HasSuffix(s.Name, "clock_gettime") {
			continue
		}
		// On amd64 clock_gettime is an alias of __vdso_clock_gettime, on arm64 there is
		// __kernel_clock_gettime.
		frame := o.Frame(m, m.Start+s.Value)
		if !strings.HasSuffix(frame.Function, "clock_gettime") || frame.Mapping.Value().File != "[vdso]" {
			t.Errorf("%s is %+v", s.Name, frame)
		}
		return
	}
	t.Error("the vDSO has no clock_gettime")
}

// BenchmarkLibjvm measures the cost of one JVM: reading the file, and 1,000 lookups of distinct
// functions, the first time (they are demangled) and later. "heap-B" is the live heap that the
// symbols add.
func BenchmarkLibjvm(b *testing.B) {
	path := libjvm(b)
	open := func() (*os.File, error) { return os.Open(path) }
	b.Run("open", func(b *testing.B) {
		b.ReportAllocs()
		before := liveHeap()
		var files *Files
		for b.Loop() {
			files = NewFiles(64 << 20)
			if _, err := files.Get(FileKey{}, open); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(liveHeap()-before), "heap-B")
		runtime.KeepAlive(files)
	})
	m, o := mapped(b, path, 0x7f1234560000)
	addrs := make([]uint64, 1000)
	for i := range addrs {
		addrs[i] = 0x7f1234560000 + o.table.Start(i*o.table.Len()/len(addrs))
	}
	b.Run("lookup1000first", func(b *testing.B) {
		for b.Loop() {
			*o.names = nameCache{}
			for _, addr := range addrs {
				o.Frame(m, addr)
			}
		}
	})
	b.Run("lookup1000", func(b *testing.B) {
		for b.Loop() {
			for _, addr := range addrs {
				o.Frame(m, addr)
			}
		}
	})
}

// liveHeap is the heap in use after a collection, in bytes.
func liveHeap() int64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
