package hotspot

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmtest"
)

// Symbols that strip removes.
const (
	currentThread = "_ZN6Thread12_thr_currentE"
	javaThread    = "_ZTV10JavaThread"
	stubList      = "_ZN12StubCodeDesc5_listE"
)

// strippedOf is an image without what .symtab says.
func strippedOf(whole *Image) *Image {
	b := *whole.Build
	b.Symbols = maps.Clone(b.Symbols)
	delete(b.Symbols, currentThread)
	delete(b.Symbols, javaThread)
	return &Image{&b}
}

// The vtable of JavaThread is learned where no symbol says it.
func TestRecordedThreadsStripped(t *testing.T) {
	for _, name := range []string{"testdata/objects17.gz", "testdata/objects25.gz"} {
		r := loadRecording(t, name)
		whole := r.attach(t, nil)
		want := whole.Layout().Thread
		threads, err := whole.ThreadAddresses(1)
		if err != nil || len(threads) == 0 {
			t.Fatal(threads, err)
		}
		mem := r.memory() // which has no more of JavaThreads than was read with the symbols
		mem.Pieces = append(mem.Pieces, vmtest.Piece{Addr: threads[0],
			Data: binary.LittleEndian.AppendUint64(nil, want.Vtable)})
		slices.SortFunc(mem.Pieces, func(a, b vmtest.Piece) int { return cmp.Compare(a.Addr, b.Addr) })
		got, err := strippedOf(r.image()).Attach(vmruntime.Target{Memory: mem, Bias: r.Bias})
		if err != nil {
			t.Fatal(err)
		}
		if l := got.(*Process).Layout(); !l.Thread.ByID || l.Thread.TLSModule != 0 || l.Thread.Vtable != want.Vtable ||
			want.ByID {
			t.Errorf("%s: %+v; with symbols %+v; missing %q", name, l.Thread, want, l.Missing)
		}
	}
}

// A libjvm of musl may have the symbols, but its threads have their storage elsewhere than the
// kernel side looks.
func TestRecordedThreadsWithoutTLS(t *testing.T) {
	r := loadRecording(t, "testdata/objects17.gz")
	r.TLSSlot = 0
	if l := r.attach(t, nil).Layout(); !l.Thread.ByID || l.Thread.TLSModule != 0 || l.Thread.Vtable == 0 {
		t.Errorf("%+v, missing %q", l.Thread, l.Missing)
	}
}

// TestLiveThreads compares the list with what the kernel knows of the guest's threads.
func TestLiveThreads(t *testing.T) {
	for _, home := range jdks(t) {
		t.Run(filepath.Base(home), func(t *testing.T) {
			vm := startJVM(t, home, append(burnOptions, "hotspot.ScopesGuest", "burn")...)
			symbol := vm.attach(t).Layout().Thread.Vtable
			vm.image = strippedOf(vm.image)
			p := vm.attach(t)
			if l := p.Layout(); !l.Thread.ByID || l.Thread.Vtable != symbol {
				t.Fatalf("%+v, missing %q; want the vtable %#x", l.Thread, l.Missing, symbol)
			}
			threads, err := p.Threads()
			if err != nil {
				t.Fatal(err)
			}
			names := map[string]bool{}
			for _, thread := range threads {
				comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/comm", vm.pid, thread.ID))
				if err != nil {
					t.Errorf("thread %+v: %v", thread, err)
				}
				names[strings.TrimSpace(string(comm))] = true
			}
			for _, want := range []string{"worker", "Reference Handl", "Finalizer"} {
				if !names[want] {
					t.Errorf("%q is not in the list: %v", want, names)
				}
			}
			tasks, err := filepath.Glob("/proc/" + strconv.Itoa(vm.pid) + "/task/*")
			if err != nil || len(threads) == 0 || len(threads) >= len(tasks) {
				t.Errorf("%d threads of %d, %v", len(threads), len(tasks), err)
			}
			for name := range names {
				if strings.Contains(name, "CompilerThre") || strings.HasPrefix(name, "VM ") ||
					strings.HasPrefix(name, "GC ") {
					t.Errorf("%q runs no Java code", name)
				}
			}
		})
	}
}
