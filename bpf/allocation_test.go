//go:build linux && amd64

package bpf

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
)

// A fakeAllocator has the probes of allocations in a VM with one class, A, and one buffer.
type fakeAllocator struct {
	*prober
	heap             *fakeHeap
	inBuffer, beside *probe
	klass, thread    uint64
}

// tlab is the size of the buffer that threads of a fakeAllocator have.
const tlab = 1 << 18

func newFakeAllocator(t *testing.T) *fakeAllocator {
	t.Helper()
	a := &fakeAllocator{prober: newProber(t, Options{}), heap: newFakeHeap(t)}
	a.heap.TlabEnd = 80
	a.layout(t, a.heap.HotspotHeap)
	a.inBuffer, a.beside = a.attach(t, a.p.AllocationInBuffer, 1), a.attach(t, a.p.AllocationOutside, 1)
	a.klass, a.thread = a.heap.klass("A", 0), a.heap.allocate(128)
	a.heap.mem.put64(a.thread+uint64(a.heap.TlabStart), 0x7_0000_0000)
	a.heap.mem.put64(a.thread+uint64(a.heap.TlabEnd), 0x7_0000_0000+tlab)
	return a
}

// allocate allocates an object of size bytes in a new buffer, or outside.
func (a *fakeAllocator) allocate(size uint64, outside bool) {
	if outside {
		a.beside.hit(arguments{a.klass, a.heap.mem.base, size, a.thread})
		return
	}
	a.inBuffer.hit(arguments{a.klass, a.heap.mem.base, tlab, size, a.thread})
}

// room is a buffer's, beside the object that it is begun with: tlab bytes in all.
func room(size uint64) uint64 { return tlab - size }

// forget has nothing known of threads' buffers.
func (a *fakeAllocator) forget(t *testing.T) {
	t.Helper()
	var tid uint32
	for a.p.Buffers.NextKey(nil, &tid) == nil {
		if err := a.p.Buffers.Delete(tid); err != nil {
			t.Fatal(err)
		}
	}
}

// begin gives this thread, which the test keeps, a buffer that begins with an object of 16 bytes:
// nothing is known of what was before, so nothing is recorded.
func (a *fakeAllocator) begin(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	a.forget(t)
	a.allocate(16, false)
	a.none(t, "the first buffer of a thread")
}

// said is what an allocation was recorded as: in a new buffer or out, its size, and of how many bytes.
func said(o observed) string {
	where := "in"
	if o.seen.Flags&SeenOutside != 0 {
		where = "out"
	}
	return fmt.Sprintf("%s %d of %d", where, o.seen.Values[0], o.seen.Values[1])
}

func (a *fakeAllocator) said(t *testing.T) string {
	t.Helper()
	var all []string
	for _, o := range a.observations(t) {
		if o.seen.What != ObservedAllocation || o.seen.Count != 3 || o.text != "A" || o.seen.Every != 1 ||
			len(o.User) == 0 {
			t.Errorf("%+v of a %q with %d frames", o.seen, o.text, len(o.User))
		}
		all = append(all, said(o))
	}
	return strings.Join(all, ", ")
}

// The first object that does not fit into a thread's buffer ends it, and stands for what was
// allocated since the last end. Those that follow until there is a new one do not, and neither does
// one that no buffer has room for, but for itself.
func TestKernelBufferEnds(t *testing.T) {
	type object struct {
		size    uint64
		outside bool
	}
	const in, out = false, true
	a := newFakeAllocator(t)
	for _, test := range []struct {
		name    string
		objects []object // after one of 16 bytes that a buffer begins with
		want    string
	}{
		{"new buffers", []object{{24, in}, {32, in}}, fmt.Sprintf("in 24 of %d, in 32 of %d", 16+room(16), 24+
			room(24))},
		{"outside, then new", []object{{5000, out}, {24, in}, {32, in}},
			fmt.Sprintf("out 5000 of %d, in 32 of %d", 16+room(16), 5000+24+room(24))},
		{"several outside", []object{{5000, out}, {6000, out}, {4500, out}, {24, in}, {32, in}},
			fmt.Sprintf("out 5000 of %d, in 32 of %d", 16+room(16), 5000+6000+4500+24+room(24))},
		{"larger than a buffer", []object{{tlab + 8, out}, {24, in}},
			fmt.Sprintf("out 262152 of 262152, in 24 of %d", 16+room(16))},
		{"as large as a buffer", []object{{tlab, out}, {24, in}},
			fmt.Sprintf("out 262144 of 262144, in 24 of %d", 16+room(16))},
		{"just smaller than a buffer", []object{{tlab - 8, out}, {24, in}, {32, in}},
			fmt.Sprintf("out 262136 of %d, in 32 of %d", 16+room(16), tlab-8+24+room(24))},
		{"larger in between", []object{{5000, out}, {tlab, out}, {6000, out}, {24, in}, {32, in}},
			fmt.Sprintf("out 5000 of %d, out 262144 of 262144, in 32 of %d", 16+room(16), 5000+6000+24+room(24))},
		{"a buffer of an object as large as it", []object{{tlab, in}, {24, in}},
			fmt.Sprintf("in 262144 of %d, in 24 of %d", 16+room(16), 2*tlab)},
	} {
		a.begin(t)
		for _, o := range test.objects {
			a.allocate(o.size, o.outside)
		}
		if got := a.said(t); got != test.want {
			t.Errorf("%s: recorded %q, want %q", test.name, got, test.want)
		}
	}
}

// Objects above a bound of the collector's are in no buffer, and stand for themselves.
func TestProbeLargestBuffered(t *testing.T) {
	a := newFakeAllocator(t)
	a.heap.LargestBuffered = 8192
	a.layout(t, a.heap.HotspotHeap)
	a.begin(t)
	a.allocate(8200, true)
	a.allocate(8192, true)
	a.allocate(24, false)
	if got, want := a.said(t), fmt.Sprintf("out 8200 of 8200, out 8192 of %d", 16+room(16)); got != want {
		t.Errorf("recorded %q, want %q", got, want)
	}
}

// Every thread has a buffer of its own.
func TestProbeBufferEndsByThread(t *testing.T) {
	a := newFakeAllocator(t)
	a.begin(t)
	a.allocate(5000, true)
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends
		for _, size := range []uint64{24, 32} {
			a.allocate(size, false)
		}
		a.allocate(6000, true)
		a.allocate(40, false)
		close(done)
	}()
	<-done
	a.allocate(24, false)
	a.allocate(48, false)
	want := fmt.Sprintf("out 5000 of %d, in 32 of %d, out 6000 of %d, in 48 of %d", 16+room(16), 24+room(24), 32+
		room(32), 5000+24+room(24))
	if got := a.said(t); got != want {
		t.Errorf("recorded %q, want %q", got, want)
	}
}

// Buffers that the VM took away had no end: what comes next is any object. Half of such a buffer
// was used, which the next end stands for.
func TestProbeBufferTaken(t *testing.T) {
	a := newFakeAllocator(t)
	for _, test := range []struct {
		name  string
		flags uint32
		event func(*Epochs)
		taken bool
	}{
		{"a collection", 0, func(e *Epochs) { e.Collections++ }, true},
		{"a stop", 0, func(e *Epochs) { e.Stops++ }, false},
		{"a stop of a concurrent collector", HeapConcurrent, func(e *Epochs) { e.Stops++ }, true},
		{"a collection's begin, of a concurrent collector", HeapConcurrent, func(e *Epochs) { e.Collections++ }, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			var e Epochs
			if err := a.o.Epochs.Put(uint32(proberSlot), &e); err != nil {
				t.Fatal(err)
			}
			a.heap.Flags = test.flags
			a.layout(t, a.heap.HotspotHeap)
			a.begin(t)
			happen := func() {
				test.event(&e)
				if err := a.o.Epochs.Put(uint32(proberSlot), &e); err != nil {
					t.Fatal(err)
				}
			}
			happen()
			a.allocate(24, false)
			a.allocate(32, false)
			a.allocate(5000, true)
			happen()
			a.allocate(40, false)
			a.allocate(48, false)
			want := fmt.Sprintf("in 24 of %d, in 32 of %d, out 5000 of %d, in 48 of %d", 16+room(16), 24+room(24), 32+
				room(32), 5000+40+room(40))
			if test.taken { // the second buffer had ended before: nothing of it is owed
				want = fmt.Sprintf("in 32 of %d, out 5000 of %d, in 48 of %d", 16+room(16)/2+24+room(24), 32+room(32),
					5000+40+room(40))
			}
			if got := a.said(t); got != want {
				t.Errorf("recorded %q, want %q", got, want)
			}
		})
	}
}

// What is not recorded is not forgotten.
func TestProbeBufferEndsUnrecorded(t *testing.T) {
	a := newFakeAllocator(t)
	a.begin(t)
	a.rate(t, a.beside, 0)
	a.allocate(5000, true)
	a.allocate(24, false)
	a.allocate(32, false)
	if got, want := a.said(t), fmt.Sprintf("in 32 of %d", 5000+24+room(24)); got != want {
		t.Errorf("recorded %q, want %q", got, want)
	}
}

// A VM that gives up a buffer and finds no room for another allocates the object that met the end
// outside. The next object, which gets a buffer, is any. An object that no buffer can have stands
// for itself there, too; the next end stands for the buffer.
func TestProbeBufferGivenUp(t *testing.T) {
	a := newFakeAllocator(t)
	start, end := a.thread+uint64(a.heap.TlabStart), a.thread+uint64(a.heap.TlabEnd)
	without := func(size uint64) {
		a.heap.mem.put64(start, 0)
		a.heap.mem.put64(end, 0)
		a.allocate(size, true)
		a.heap.mem.put64(start, 0x7_0000_0000)
		a.heap.mem.put64(end, 0x7_0000_0000+tlab)
	}
	for _, test := range []struct {
		name string
		size uint64
		want string
	}{
		{"an object that fits into a buffer", 4016, fmt.Sprintf("out 4016 of %d, in 32 of %d", 16+room(16), 4016+24+
			room(24))},
		{"an object that does not", tlab, fmt.Sprintf("out %d of %d, in 32 of %d", tlab, tlab, 16+room(16)+24+
			room(24))},
	} {
		a.begin(t)
		without(test.size)
		a.allocate(24, false)
		a.allocate(32, false)
		if got := a.said(t); got != test.want {
			t.Errorf("%s: recorded %q, want %q", test.name, got, test.want)
		}
	}
	a.forget(t)
	without(4016)
	a.allocate(24, false)
	a.allocate(32, false)
	if got, want := a.said(t), fmt.Sprintf("in 32 of %d", 4016+24+room(24)); got != want {
		t.Errorf("a thread of which nothing is known: recorded %q, want %q", got, want)
	}
	a.heap.TlabEnd = a.heap.TlabStart
	a.layout(t, a.heap.HotspotHeap)
	a.allocate(5000, true)
	if got, want := a.said(t), "out 5000 of 5000"; got != want {
		t.Errorf("a VM without buffers: recorded %q, want %q", got, want)
	}
}

// Processes that were not chosen are neither counted nor recorded.
func TestProbeAllocationsOfOthers(t *testing.T) {
	a := newFakeAllocator(t)
	var pid uint32
	for all := a.o.Pids.Iterate(); all.Next(&pid, new(uint8)); {
		if err := a.o.Pids.Delete(pid); err != nil {
			t.Fatal(err)
		}
	}
	a.allocate(16, false)
	a.allocate(5000, true)
	a.none(t, "not chosen")
	if c := a.counts(t); c[ProbeHits] != 0 || c[ObservationsAttempted] != 0 {
		t.Errorf("%d hits, %d attempts", c[ProbeHits], c[ObservationsAttempted])
	}
}

// Until the VM of a process is attached, its allocations have neither frames nor a class: they are
// hits, and nothing else.
func TestKernelAllocationUnattached(t *testing.T) {
	a := newFakeAllocator(t)
	pinned(t)
	if err := a.o.Processes.Delete(uint32(os.Getpid())); err != nil {
		t.Fatal(err)
	}
	a.allocate(32, false)
	a.allocate(1<<20, true) // stands for itself
	a.allocate(32, false)
	a.none(t, "the VM is not attached")
	if c := a.counts(t); c[HitsUnattached] != 3 || c[ProbeHits] != 3 || c[ObservationsAttempted] != 0 {
		t.Errorf("%d of %d hits came before the VM was attached, %d observations were begun; want 3 of 3 and 0",
			c[HitsUnattached], c[ProbeHits], c[ObservationsAttempted])
	}
	a.announce(t)
	a.allocate(1<<20, true)
	if got := a.one(t); got.text != "A" {
		t.Errorf("an object of class %q", got.text)
	}
	if n := a.counts(t)[HitsUnattached]; n != 3 {
		t.Errorf("%d hits before the VM was attached, want still 3", n)
	}
}
