package probesite

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/elffile"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
)

// liveVersions are the JDKs with known facts.
var liveVersions = []int{17, 25}

// jdkOf returns an installed JDK. With CI=true, a missing one is a failure.
func jdkOf(t testing.TB, version int) jvm.JDK {
	t.Helper()
	found, err := jvm.Find(jvm.Root)
	if err != nil {
		t.Fatal(err)
	}
	for _, jdk := range found {
		if jdk.Version == version {
			return jdk
		}
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("JDK %d is not installed in %s", version, jvm.Root)
	}
	t.Skipf("needs JDK %d in %s", version, jvm.Root)
	return jvm.JDK{}
}

// onEach runs a test on the libjvm of each JDK.
func onEach(t *testing.T, test func(t *testing.T, version int, f *Finder)) {
	for _, version := range liveVersions {
		t.Run(strconv.Itoa(version), func(t *testing.T) { test(t, version, libjvm(t, version)) })
	}
}

func libjvm(t testing.TB, version int) *Finder {
	t.Helper()
	return open(t, filepath.Join(jdkOf(t, version).Home, "lib/server/libjvm.so"))
}

// open opens a file for the length of a test.
func open(t testing.TB, path string) *Finder {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	f, err := elffile.OpenFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return New(f, file)
}

// A function that is disassembled from its first byte ends where its symbol says.
func TestLiveDisassembly(t *testing.T) {
	onEach(t, func(t *testing.T, _ int, f *Finder) {
		file := f.bytes.(*os.File)
		reference, err := elf.NewFile(file)
		if err != nil {
			t.Fatal(err)
		}
		symbols, err := reference.Symbols()
		if err != nil {
			t.Fatal(err)
		}
		functions, right, instructions := 0, 0, 0
		for _, s := range symbols {
			if elf.ST_TYPE(s.Info) != elf.STT_FUNC || s.Section == elf.SHN_UNDEF || s.Size == 0 {
				continue
			}
			code, err := f.code(s.Value, s.Size)
			if err != nil {
				t.Fatalf("%s: %v", s.Name, err)
			}
			functions++
			at := 0
			for at < len(code) {
				i, err := Decode(code[at:])
				if err != nil {
					t.Logf("%s+%#x: %v", s.Name, at, err)
					break
				}
				at += i.Len
				instructions++
			}
			if at == len(code) {
				right++
			}
		}
		t.Logf("%d of %d functions end where they should, %d instructions", right, functions, instructions)
		if functions < 30_000 || float64(right) < 0.999*float64(functions) {
			t.Errorf("%d of %d functions end where they should", right, functions)
		}
	})
}

func TestLiveEntries(t *testing.T) {
	onEach(t, func(t *testing.T, version int, f *Finder) {
		for name, want := range map[string]map[int]int{ // overloads by JDK
			"AllocTracer::send_allocation_in_new_tlab":  {17: 1, 25: 1},
			"AllocTracer::send_allocation_outside_tlab": {17: 1, 25: 1},
			"SharedRuntime::dtrace_object_alloc":        {17: 1, 25: 3},
			"ObjectMonitor::enter":                      {17: 1, 25: 1},
			"SharedRuntime::complete_monitor_locking_C": {17: 1, 25: 1},
		} {
			sites, err := f.Entries(name)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if len(sites) != want[version] {
				t.Errorf("%s: %d sites, want %d: %+v", name, len(sites), want[version], sites)
			}
			for _, s := range sites {
				checkSite(t, f, s)
			}
		}
	})
}

// The write barrier of G1 goes on to the queue of cards with a jump.
func TestLiveTowards(t *testing.T) {
	onEach(t, func(t *testing.T, version int, f *Finder) {
		if version > 25 {
			t.Skip("JDK 26 has another barrier")
		}
		sites, err := f.Towards("G1DirtyCardQueueSet::enqueue", "G1BarrierSetRuntime::write_ref_field_post_entry")
		if err != nil || len(sites) != 1 {
			t.Fatalf("%+v, %v", sites, err)
		}
		checkSite(t, f, sites[0])
	})
}

// checkSite compares a site with the file.
func checkSite(t *testing.T, f *Finder, s Site) {
	t.Helper()
	offset, ok := f.file.AddressToOffset(s.Address)
	if !ok || offset != s.Offset {
		t.Errorf("%s: offset %#x of address %#x, want %#x", s.Function, s.Offset, s.Address, offset)
	}
	kind, err := KindAt(f.file.Machine(), f.bytes, s.Offset)
	if err != nil || kind != s.Kind || !s.Emulated {
		t.Errorf("%s: %v at %#x, found %v, %v; emulated %t", s.Function, s.Kind, s.Address, kind, err, s.Emulated)
	}
}

// The callers of ObjectMonitor::enter, and those that use the result of TrySpin: how many sites
// there are, and how many calls are missed. JDK 17's wait jumps away at once, and JDK 25's does not
// use the result; both are found if jumps on the result are not required.
func TestLiveAfterCalls(t *testing.T) {
	onEach(t, func(t *testing.T, version int, f *Finder) {
		type result struct{ sites, missed int }
		spin := map[int]string{17: "ObjectMonitor::TrySpin", 25: "ObjectMonitor::try_spin"}[version]
		for _, test := range []struct {
			calls Calls
			want  map[int]result
		}{
			{Calls{Callee: "ObjectMonitor::enter", Conditional: true}, map[int]result{17: {5, 1}, 25: {5, 3}}},
			{Calls{Callee: "ObjectMonitor::enter"}, map[int]result{17: {6, 0}, 25: {8, 0}}},
			{Calls{Callee: spin, Conditional: true}, map[int]result{17: {4, 0}, 25: {4, 1}}},
			{Calls{Callee: spin, In: "ObjectMonitor::enter", Conditional: true},
				map[int]result{17: {1, 0}, 25: {1, 0}}},
		} {
			r, err := f.AfterCalls(test.calls)
			if err != nil {
				t.Errorf("%+v: %v", test.calls, err)
				continue
			}
			if got := (result{len(r.Sites), len(r.Missed)}); got != test.want[version] {
				t.Errorf("%+v: %+v, want %+v", test.calls, got, test.want[version])
			}
			for _, s := range r.Sites {
				checkSite(t, f, s)
				if s.Address <= s.Call || s.Address-s.Call > 32 || test.calls.Conditional && s.Kind != CondJump {
					t.Errorf("%+v", s)
				}
				t.Logf("%+v: %v at %#x, %d behind the call in %s", test.calls, s.Kind, s.Address, s.Distance,
					s.Function)
			}
			for _, m := range r.Missed {
				t.Logf("%+v: missed at %#x in %s: %s", test.calls, m.Address, m.Function, m.Reason)
			}
		}
	})
}

// Every probe of libjvm is on a NOP that the kernel emulates.
func TestLiveNotes(t *testing.T) {
	onEach(t, func(t *testing.T, _ int, f *Finder) {
		probes, err := f.file.Probes()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range probes {
			sites, err := f.Notes(p.Provider, p.Name)
			if err != nil {
				t.Fatal(err)
			}
			at := slices.IndexFunc(sites, func(s Site) bool { return s.Address == p.Location })
			if at < 0 || sites[at].Kind != Nop || !sites[at].Emulated || len(sites[at].Args) != len(p.Args) ||
				sites[at].Function == "" {
				t.Errorf("%s at %#x: %+v", p.Name, p.Location, sites)
			}
		}
		if len(probes) < 500 {
			t.Errorf("only %d probes", len(probes))
		}
	})
}

// Every JDK since 13 has the VM's clock of safepoints.
func TestLiveVariables(t *testing.T) {
	onEach(t, func(t *testing.T, _ int, f *Finder) {
		for _, name := range []string{"begin", "end"} {
			name = fmt.Sprintf("_ZN16SafepointTracing%d_last_safepoint_%s_time_nsE", len("_last_safepoint__time_ns")+
				len(name), name)
			if at, err := f.Variable(name); err != nil || at%8 != 0 {
				t.Errorf("%s: at %#x, %v", name, at, err)
			}
		}
	})
}

// Scanning a whole libjvm takes well under a second.
func BenchmarkLibjvmAfterCalls(b *testing.B) {
	f := libjvm(b, 25)
	for b.Loop() {
		f.table = nil
		if _, err := f.AfterCalls(Calls{Callee: "ObjectMonitor::enter"}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLibjvmEntries(b *testing.B) {
	f := libjvm(b, 25)
	for b.Loop() {
		if _, err := f.Entries("ObjectMonitor::enter"); err != nil {
			b.Fatal(err)
		}
	}
}
