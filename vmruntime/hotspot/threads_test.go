package hotspot

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmtest"
)

// strippedOf is an image without what .symtab says.
func strippedOf(whole *Image) *Image {
	image := *whole
	image.symbols = maps.Clone(whole.symbols)
	delete(image.symbols, symbolCurrentThread)
	delete(image.symbols, symbolJavaThread)
	return &image
}

// The vtable of JavaThread is learned where no symbol says it.
func TestRecordedThreadsStripped(t *testing.T) {
	for _, name := range []string{"testdata/objects17.gz", "testdata/objects25.gz"} {
		r := loadRecording(t, name)
		whole := r.attach(t, nil)
		want := whole.Layout().Thread
		threads, err := whole.threads(1)
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

// Up to JDK 9 the list is a linked one, and begins with the newest thread.
func TestLinkedThreads(t *testing.T) {
	const javaThread, compilerThread = 0x7000_0100, 0x7000_0200
	m := &vmtest.Image{Base: 0x1000}
	add := func(vtable, id, next uint64) uint64 { return m.Words(vtable, m.Words(id), next) }
	first := add(javaThread, 11, 0)
	second := add(javaThread, 12, first)
	compiler := add(compilerThread, 13, second)
	dying := m.Words(javaThread, 0, compiler)    // its OSThread is gone
	unreadable := m.Words(javaThread, 16, dying) // where that cannot be
	newest := add(javaThread, 14, unreadable)
	head := m.Words(newest)
	empty := m.Words(0)

	p := bareProcess(m.Memory())
	p.build.low, p.build.high, p.bias = 0x100, 0x300, 0x7000_0000
	p.thread.firstThread, p.thread.nextThread = head, vmstructs.Field{Offset: 16, Width: 8, Known: true}
	p.thread.osThread, p.thread.osThreadID = vmstructs.Field{Offset: 8, Width: 8, Known: true},
		vmstructs.Field{Offset: 0, Width: 4, Known: true}
	p.layout.Thread.OSThread = 8

	if err := p.layoutThreadIDs(); err != nil || !p.layout.Thread.ByID || p.layout.Thread.Vtable != javaThread {
		t.Fatalf("%+v, %v, missing %q", p.layout.Thread, err, p.layout.Missing)
	}
	got, err := p.Threads()
	if want := []vmruntime.Thread{{ID: 14, Address: newest}, {ID: 12, Address: second},
		{ID: 11, Address: first}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("threads %+v, %v; want %+v", got, err, want)
	}

	p.build.low = 0x200 // the oldest thread's vtable is none of libjvm's
	p.layout.Thread = ThreadLayout{OSThread: 8}
	if err := p.layoutThreadIDs(); err != nil || p.layout.Thread.ByID || len(p.layout.Missing) != 1 {
		t.Errorf("%+v, %v, missing %q", p.layout.Thread, err, p.layout.Missing)
	}
	p.thread.firstThread, p.layout.Thread = empty, ThreadLayout{OSThread: 8}
	if err := p.layoutThreadIDs(); !errors.Is(err, vmruntime.ErrStarting) {
		t.Errorf("no threads: %v", err)
	}
}

// A list that leads in circles ends.
func TestLinkedThreadsAreBounded(t *testing.T) {
	m := &vmtest.Image{Base: 0x1000}
	at := m.Base + 8
	head := m.Words(at, 0x7000_0100, 0, at)
	p := bareProcess(m.Memory())
	p.thread.firstThread, p.thread.nextThread = head, vmstructs.Field{Offset: 16, Width: 8, Known: true}
	if got, err := p.javaThreadVtable(); err == nil {
		t.Errorf("vtable %#x", got)
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

// JDK 8 does not say where a frame of the interpreter has its caller's stack pointer. At 0, where
// it has the caller's frame pointer, the callers of compiled methods that the interpreter was
// called from would be lost.
func TestSenderSP(t *testing.T) {
	const name = "frame::interpreter_frame_sender_sp_offset"
	for _, test := range []struct {
		constants map[string]int64
		want      int64
	}{
		{nil, -1}, {map[string]int64{name: -1}, -1}, {map[string]int64{name: -2}, -2},
	} {
		s := newThreadSchema(&vmstructs.Resolver{Tables: &vmstructs.Tables{Constants: test.constants}})
		if s.senderSPWord != test.want {
			t.Errorf("with %v: word %d, want %d", test.constants, s.senderSPWord, test.want)
		}
	}
}
