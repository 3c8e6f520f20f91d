//go:build linux && amd64

package monitors

import (
	"context"
	"os"
	"reflect"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/watch"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/tests/agentmaps"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
)

// An object has the layout that the kernel side reads: a mark, and the class.
type object struct{ mark, klass uint64 }

// Functions that stand for acquisitions: the object is in rax, where Go has the first argument
// (abi-internal.md).

//go:nosplit
//go:noinline
func enterOften(o *object) uint64 { return o.mark }

//go:nosplit
//go:noinline
func enterSeldom(o *object) uint64 { return o.mark + 1 }

const raxOffset = 80 // in struct pt_regs (arch/x86/include/asm/ptrace.h)

// A fixture watches this process itself.
type fixture struct {
	*Listener
	id     proc.Identity
	memory *proc.Memory
	heaps  *ebpf.Map
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	needs.Root(t, "to set breakpoints")
	o, heaps := agentmaps.New(t), agentmaps.Heaps(t)
	l, err := Open(o, heaps, watch.New(proc.DefaultRoot))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	id, err := proc.DefaultRoot.Identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	pool := proc.NewPool(proc.PoolOptions{})
	memory, err := proc.OpenMemory(proc.DefaultRoot, id, pool)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { memory.Close() })
	pid := uint32(id.PID)
	if err := o.Processes.Put(pid, &bpf.HotspotProcess{StartTicks: id.Ticks(), Serial: 7}); err != nil {
		t.Fatal(err)
	}
	f := &fixture{l, id, memory, heaps}
	f.heap(t, bpf.HotspotHeap{Serial: 7, ObjectKlass: uint32(unsafe.Offsetof(object{}.klass))})
	return f
}

// heap says how this process's objects look.
func (f *fixture) heap(t *testing.T, h bpf.HotspotHeap) {
	t.Helper()
	if err := f.heaps.Put(uint32(f.id.PID), &h); err != nil {
		t.Fatal(err)
	}
}

// site is the first instruction of a function.
func (f *fixture) site(t *testing.T, function any) Site {
	t.Helper()
	s := Site{Place: Place{Address: uint64(reflect.ValueOf(function).Pointer())}}
	s.kernel = bpf.EnterSite{Reg: raxOffset}
	if err := f.memory.Read(s.Address, s.code[:]); err != nil {
		t.Fatal(err)
	}
	return s
}

// play opens a window on a thread that repeats enters until the window is closed.
func (f *fixture) play(t *testing.T, w Window, enters func()) (Result, int) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	tid, ended := make(chan int), make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // and never unlocked: so the thread ends with the goroutine
		tid <- unix.Gettid()
		for ctx.Err() == nil {
			enters()
			time.Sleep(time.Millisecond) // It is the pace: a window is to see some rounds, not thousands.
		}
	}()
	w.Threads = []int{<-tid}
	r, err := f.Listen(t.Context(), f.id, f.memory, w)
	stop()
	<-ended
	if err != nil {
		t.Fatal(err)
	}
	return r, w.Threads[0]
}

// Verifying the program takes an emulated processor seconds: one serves all.
func TestKernelEnters(t *testing.T) {
	f := newFixture(t)
	t.Run("hits", f.hits)
	t.Run("without class", f.withoutClass)
	t.Run("of others", f.ofOthers)
}

func (f *fixture) hits(t *testing.T) {
	often, seldom := &object{1, 0x1000}, &object{1, 0x2000}
	enters := func() {
		for range 3 {
			enterOften(often)
		}
		enterSeldom(seldom)
	}
	sites := []Site{f.site(t, enterOften), f.site(t, enterSeldom)}
	r, tid := f.play(t, Window{Sites: sites, Duration: 5 * time.Second}, enters)
	if len(r.Hits) != MaxHits || r.Counts[0] < 3*r.Counts[1]-3 || r.Counts[0] > 3*r.Counts[1]+3 {
		t.Errorf("%d hits, %v: want %d, three of one site for each of the other", len(r.Hits), r.Counts, MaxHits)
	}
	for _, h := range r.Hits {
		if want := []uint64{often.klass, seldom.klass}[h.Site]; h.Klass != want || h.Thread != tid {
			t.Errorf("%+v, want class %#x in thread %d", h, want, tid)
		}
	}
	if r.Ran <= 0 || r.Traps <= 0 || r.Cost < r.Traps/2 {
		t.Errorf("ran %v, traps %v, cost %v", r.Ran, r.Traps, r.Cost)
	}
	checkWalks(t, r, sites)
}

// checkWalks checks that each site has a few contexts, which begin there.
func checkWalks(t *testing.T, r Result, sites []Site) {
	t.Helper()
	if n := len(r.Walks); n < len(sites) || n > bpf.MaxEnterWalks {
		t.Errorf("%d contexts", n)
	}
	seen := map[int]bool{}
	for _, walk := range r.Walks {
		var o bpf.Observation
		if err := bpf.DecodeObservation(walk.Record, &o); err != nil {
			t.Fatal(err)
		}
		site := r.Hits[walk.Hit].Site
		seen[site] = true
		if len(o.User) < 2 || o.User[0].PC() != sites[site].Address || int(o.Tid) != r.Hits[walk.Hit].Thread {
			t.Errorf("context of thread %d with %d frames, the first at %#x, want %#x", o.Tid, len(o.User),
				o.User[0].PC(), sites[site].Address)
		}
	}
	if len(seen) != len(sites) {
		t.Errorf("contexts of sites %v only", seen)
	}
}

// An unreadable object has no class; and a window whose time is over has its observations until
// then.
func (f *fixture) withoutClass(t *testing.T) {
	o := &object{1, 0x1000}
	site := f.site(t, enterOften)
	for _, test := range []struct {
		name   string
		reg    uint32
		serial uint32 // serial of the heap
	}{{"no register", 1 << 20, 7}, {"another heap", raxOffset, 8}} {
		name := test.name
		site.kernel.Reg = test.reg
		f.heap(t, bpf.HotspotHeap{Serial: test.serial, ObjectKlass: uint32(unsafe.Offsetof(object{}.klass))})
		r, _ := f.play(t, Window{Sites: []Site{site}, Duration: 20 * time.Millisecond}, func() { enterOften(o) })
		if len(r.Hits) == 0 || len(r.Hits) == MaxHits {
			t.Errorf("%s: %d hits", name, len(r.Hits))
		}
		for _, h := range r.Hits {
			if h.Klass != 0 {
				t.Errorf("%s: class %#x", name, h.Klass)
			}
		}
	}
}

// Hits of another program with the same pid, and windows on code that has changed, do not count.
func (f *fixture) ofOthers(t *testing.T) {
	o := &object{1, 0x1000}
	site := f.site(t, enterOften)
	before := f.observer.Cost().Hits
	self := f.id
	t.Cleanup(func() { f.id = self })
	f.id.Start += 1e9
	r, _ := f.play(t, Window{Sites: []Site{site}, Duration: 20 * time.Millisecond}, func() { enterOften(o) })
	if len(r.Hits)+len(r.Walks) != 0 {
		t.Errorf("%d hits of another process", len(r.Hits))
	}
	if f.observer.Cost().Hits == before {
		t.Error("the breakpoint did not trap: the test shows nothing")
	}
	site.code[0]++
	if _, err := f.Listen(t.Context(), f.id, f.memory, Window{Sites: []Site{site}, Threads: []int{unix.Gettid()},
		Duration: time.Millisecond}); err == nil {
		t.Error("a window on other code")
	}
}
