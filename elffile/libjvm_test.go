package elffile

import (
	"debug/elf"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// libjvms finds the JVMs of the machine. With CI=true, finding none is a failure.
func libjvms(t testing.TB) []string {
	t.Helper()
	var found []string
	for _, pattern := range []string{"/usr/lib/jvm/*/lib/server/libjvm.so", os.Getenv("JAVA_HOME") +
		"/lib/server/libjvm.so"} {
		paths, _ := filepath.Glob(pattern)
		for _, path := range paths {
			// Debian has a second name for each JDK.
			if real, err := filepath.EvalSymlinks(path); err == nil && !slices.Contains(found, real) {
				found = append(found, real)
			}
		}
	}
	if len(found) == 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("no libjvm.so: install openjdk-17-jre-headless")
		}
		t.Skip("no libjvm.so on this machine")
	}
	return found
}

// openPath opens a file of the machine for the length of a test.
func openPath(t testing.TB, path string) (*File, *os.File) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	f, err := OpenFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return f, file
}

// TestLibjvm compares the data read from each JVM with debug/elf's, or with the code itself.
func TestLibjvm(t *testing.T) {
	for _, path := range libjvms(t) {
		t.Run(path, func(t *testing.T) {
			f, file := openPath(t, path)
			reference, err := elf.NewFile(file)
			if err != nil {
				t.Fatal(err)
			}
			symbols, err := reference.Symbols()
			if err != nil {
				t.Skip("stripped: ", err)
			}
			t.Run("Symbols", func(t *testing.T) { testLibjvmSymbols(t, f, symbols) })
			t.Run("FindSymbols", func(t *testing.T) { testLibjvmFindSymbols(t, f, symbols) })
			t.Run("TLSModuleSlot", func(t *testing.T) { testLibjvmTLS(t, f, reference) })
			t.Run("Probes", func(t *testing.T) { testLibjvmProbes(t, f, reference, file) })
		})
	}
}

// testLibjvmSymbols looks up the first and the last byte of every function.
func testLibjvmSymbols(t *testing.T, f *File, symbols []elf.Symbol) {
	table, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	checkTable(t, table)
	type extent struct{ start, size uint64 }
	at := map[uint64][]string{}
	extents := map[string][]extent{}
	for _, s := range symbols {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC && s.Section != elf.SHN_UNDEF {
			at[s.Value] = append(at[s.Value], s.Name)
			extents[s.Name] = append(extents[s.Name], extent{s.Value, s.Size})
		}
	}
	for start, aliases := range at {
		i, ok := table.Find(start)
		if !ok || table.Start(i) != start || !slices.Contains(aliases, table.Name(i)) {
			t.Fatalf("%#x is not one of %q", start, aliases)
		}
	}
	for name, es := range extents {
		for _, e := range es {
			if e.size == 0 {
				continue
			}
			i, ok := table.Find(e.start + e.size - 1)
			if !ok {
				t.Fatalf("last byte of %s has no name", name)
			}
			if start := table.Start(i); start < e.start {
				t.Fatalf("last byte of %s is taken for %s, which starts before it", name, table.Name(i))
			}
		}
	}
	t.Logf("%d symbols in %d bytes, %d each", table.Len(), table.Bytes(), table.Bytes()/int64(table.Len()))
}

func testLibjvmFindSymbols(t *testing.T, f *File, symbols []elf.Symbol) {
	names := []string{"gHotSpotVMStructs", "gHotSpotVMTypes", "_ZN6Thread12_thr_currentE", "_ZTV10JavaThread",
		"no such name"}
	found, err := f.FindSymbols(names...)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		i := slices.IndexFunc(symbols, func(s elf.Symbol) bool { return s.Name == name })
		got, ok := found[name]
		if ok != (i >= 0) {
			t.Errorf("%s: found %t, want %t", name, ok, i >= 0)
		} else if ok && got != (Symbol{symbols[i].Value, symbols[i].Size, elf.ST_TYPE(symbols[i].Info)}) {
			t.Errorf("%s: %+v, want %+v", name, got, symbols[i])
		}
	}
}

// testLibjvmTLS checks that the slot is a word of the GOT.
func testLibjvmTLS(t *testing.T, f *File, reference *elf.File) {
	slot, err := f.TLSModuleSlot()
	if err != nil {
		t.Fatal(err)
	}
	got := reference.Section(".got")
	if got == nil || slot < got.Addr || slot >= got.Addr+got.Size || slot%8 != 0 {
		t.Errorf("slot %#x is not in the GOT, %+v", slot, got)
	}
}

// testLibjvmProbes checks the probes that the agent depends on, and that there is a NOP at each
// site.
func testLibjvmProbes(t *testing.T, f *File, reference *elf.File, file *os.File) {
	probes, err := f.Probes()
	if err != nil {
		t.Fatal(err)
	}
	if len(probes) == 0 {
		t.Skip("built without probes")
	}
	text := reference.Section(".text")
	args := map[string]int{}
	for _, p := range probes {
		if p.Location < text.Addr || p.Location >= text.Addr+text.Size {
			t.Errorf("%s at %#x is not in .text", p.Name, p.Location)
		}
		var code [1]byte
		if _, err := file.ReadAt(code[:], int64(p.Offset)); err != nil || f.Machine() == elf.EM_X86_64 &&
			code[0] != 0x90 {
			t.Errorf("%s: byte %#x at offset %#x, %v, want a NOP", p.Name, code[0], p.Offset, err)
		}
		for i, o := range p.Args {
			if o.Err != nil {
				t.Errorf("%s: argument %d: %v", p.Name, i, o.Err)
			}
		}
		args[p.Provider+":"+p.Name] = len(p.Args)
	}
	// Numbers of arguments as in HotSpot's hotspot.d.
	for name, want := range map[string]int{
		"hotspot:compiled__method__load":   8,
		"hotspot:compiled__method__unload": 6,
		"hotspot:gc__begin":                1,
		"hotspot:gc__end":                  0,
		"hotspot:method__compile__end":     9,
	} {
		if got, ok := args[name]; !ok || got != want {
			t.Errorf("%s: %d arguments (found %t), want %d", name, got, ok, want)
		}
	}
	t.Logf("%d probes", len(probes))
}

func BenchmarkLibjvmSymbols(b *testing.B) {
	f, _ := openPath(b, libjvms(b)[0])
	b.ReportAllocs()
	for b.Loop() {
		table, err := f.Symbols()
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(table.Bytes())/float64(table.Len()), "B/symbol")
		b.ReportMetric(float64(table.Bytes()), "B/table")
	}
}

func BenchmarkLibjvmFindSymbols(b *testing.B) {
	f, _ := openPath(b, libjvms(b)[0])
	b.ReportAllocs()
	for b.Loop() {
		if _, err := f.FindSymbols("_ZN6Thread12_thr_currentE", "_ZTV10JavaThread", "absent"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLibjvmProbes(b *testing.B) {
	f, _ := openPath(b, libjvms(b)[0])
	b.ReportAllocs()
	for b.Loop() {
		if _, err := f.Probes(); err != nil {
			b.Fatal(err)
		}
		if _, err := f.TLSModuleSlot(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkTableFind(b *testing.B) {
	f, _ := openPath(b, libjvms(b)[0])
	table, err := f.Symbols()
	if err != nil {
		b.Fatal(err)
	}
	n := 0
	for b.Loop() {
		n = (n + 7919) % table.Len()
		if _, ok := table.Find(table.Start(n)); !ok {
			b.Fatalf("symbol %d is not found", n)
		}
	}
}
