//go:build linux && amd64

package bpf

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A fakeVirtual has the probes of virtual threads in a VM with one JavaThread, on which one of them
// runs.
type fakeVirtual struct {
	*fakeMonitor
	freeze, thaw, preempt, preempted, resumed *probe
	carrier, thread                           uint64 // the JavaThread, and the virtual thread's object
	base                                      uint64 // an object of which the first member is the JavaThread
}

const virtualID = 34

func newFakeLoom(t *testing.T) *fakeVirtual {
	t.Helper()
	const vtable, current, id, blocker = 0x7f0000001000, 64, 24, 32
	l := &fakeVirtual{fakeMonitor: newFakeMonitor(t)}
	l.vm.JavaThreadVtable = vtable
	l.announce(t)
	h := l.heap
	h.Flags |= HeapMounted | HeapParkBlocker
	h.ThreadCurrent, h.ThreadId, h.ParkBlocker = current, id, blocker
	l.layout(t, h.HotspotHeap)
	l.freeze, l.thaw = l.attach(t, l.p.VirtualFreeze, 1), l.attach(t, l.p.VirtualThaw, 1)
	l.preempt, l.preempted, l.resumed = l.attach(t, l.p.VirtualPreempt, 1), l.attach(t, l.p.VirtualPreempted, 1),
		l.attach(t, l.p.VirtualEntered, 1)
	l.carrier, l.base = h.allocate(128), h.allocate(8)
	h.mem.put64(l.carrier, vtable)
	h.mem.put64(l.base, l.carrier)
	l.thread = h.object(h.klass("java/lang/VirtualThread", 0), 0)
	h.mem.put64(l.carrier+current, l.thread)
	h.mem.put64(l.thread+id, virtualID)
	l.block(l.object)
	return l
}

// block has the virtual thread say what it parks for, 0 for nothing.
func (l *fakeVirtual) block(object uint64) {
	l.heap.reference(l.thread+uint64(l.heap.ParkBlocker), object)
}

func (l *fakeVirtual) counts(t *testing.T) (c VirtualCount) {
	t.Helper()
	if err := l.p.VirtualCounts.Lookup(uint32(proberSerial), &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// checkWait checks the records of one wait of a Lock's.
func (l *fakeVirtual) checkWait(t *testing.T, begin, end observed, flags uint8, least time.Duration) {
	t.Helper()
	if begin.seen.What != ObservedFreeze || begin.seen.Count != 2 || begin.seen.Flags != flags ||
		begin.text != "Lock" || begin.seen.Values[0] != virtualID {
		t.Errorf("began with %+v of a %q", begin.seen, begin.text)
	}
	if end.seen.What != ObservedThaw || end.seen.Count != 3 || end.seen.Values[0] != virtualID ||
		end.seen.Values[1] != begin.seen.Values[1] {
		t.Errorf("ended with %+v", end.seen)
	}
	if took := time.Duration(end.seen.Values[2]); took < least || took > time.Minute {
		t.Errorf("took %v, want %v or more", took, least)
	}
}

// A virtual thread that parks may go on on another thread of the kernel. Copying back more of its
// frames is not going on.
func TestKernelVirtualPark(t *testing.T) {
	l := newFakeLoom(t)
	l.freeze.hit(arguments{l.carrier})
	begin := l.one(t)
	l.thaw.hit(arguments{l.carrier, 1})
	l.none(t, "the return barrier")
	const waited = time.Millisecond
	time.Sleep(waited)
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		l.thaw.hit(arguments{l.carrier, 0xffff_ff00}) // a bool
		close(done)
	}()
	<-done
	l.checkWait(t, begin, l.one(t), 0, waited)
	l.thaw.hit(arguments{l.carrier})
	l.none(t, "it has gone on already")
	if c := l.counts(t); c != (VirtualCount{Begun: 1, Ended: 1}) {
		t.Errorf("counted %+v", c)
	}
}

func TestKernelVirtualParkNotRecorded(t *testing.T) {
	l := newFakeLoom(t)
	current, id := l.carrier+uint64(l.heap.ThreadCurrent), l.thread+uint64(l.heap.ThreadId)
	for _, test := range []struct {
		name  string
		lose  func()
		again func()
		want  VirtualCount
	}{
		{"for nothing", func() { l.block(0) }, func() { l.block(l.object) }, VirtualCount{Others: 1}},
		{"no object", func() { l.heap.mem.put64(current, 0) }, func() { l.heap.mem.put64(current, l.thread) },
			VirtualCount{Unknown: 1}},
		{"no number", func() { l.heap.mem.put64(id, 0) }, func() { l.heap.mem.put64(id, virtualID) },
			VirtualCount{Unknown: 1}},
		{"not drawn", func() { l.rate(t, l.freeze, 0) }, func() { l.rate(t, l.freeze, 1) }, VirtualCount{}},
	} {
		l.p.VirtualCounts.Put(uint32(proberSerial), &VirtualCount{})
		l.freeze.hit(arguments{l.carrier})
		l.one(t) // what was noted last is out of date
		l.p.VirtualCounts.Put(uint32(proberSerial), &VirtualCount{})
		test.lose()
		l.freeze.hit(arguments{l.carrier})
		l.none(t, test.name)
		if c := l.counts(t); c != test.want {
			t.Errorf("%s: counted %+v, want %+v", test.name, c, test.want)
		}
		test.again()
	}
	l.freeze.hit(arguments{l.base})
	l.none(t, "not a JavaThread")
	l.freeze.hit(arguments{l.carrier})
	l.one(t)
	l.turn(t, l.freeze, 1)
	l.turn(t, l.thaw, 1)
	l.thaw.hit(arguments{l.carrier})
	l.none(t, "the probes were removed meanwhile")
}

// A virtual thread leaves the function that enters monitors when its frames are on the heap, and
// the wait goes on. If they cannot be copied, it waits there as any thread.
func TestKernelVirtualMonitor(t *testing.T) {
	l := newFakeLoom(t)
	const waited = time.Millisecond
	l.light.hit(arguments{l.handle})
	time.Sleep(waited)
	l.blocks.hit(arguments{l.monitor})
	l.preempt.hit(arguments{l.carrier})
	begin := l.one(t)
	l.preempted.hit(arguments{l.monitor, l.carrier})
	l.entered.hit(arguments{})
	l.none(t, "the function returns")
	l.thaw.hit(arguments{l.carrier})
	l.none(t, "it is mounted, and has not got the monitor yet")
	time.Sleep(waited)
	l.resumed.hit(arguments{l.base})
	l.checkWait(t, begin, l.one(t), SeenContended, 2*waited)
	if c := l.counts(t); c != (VirtualCount{Begun: 1, Ended: 1}) {
		t.Errorf("counted %+v", c)
	}

	l.light.hit(arguments{l.handle})
	l.blocks.hit(arguments{l.monitor})
	l.preempt.hit(arguments{l.carrier})
	l.one(t)
	l.entered.hit(arguments{})
	if got := l.one(t); got.seen.What != ObservedMonitor || got.seen.Flags != SeenContended || got.text != "Lock" {
		t.Errorf("a thread that keeps its carrier: %+v", got.seen)
	}
	if err := l.p.Entering.Lookup(uint32(unix.Gettid()), make([]byte, 48)); err == nil {
		t.Error("its wait was not forgotten")
	}
	for _, p := range []*probe{l.preempt, l.preempted, l.resumed} {
		p.hit(arguments{l.carrier, l.carrier})
		l.none(t, "nobody waits")
	}
}

// A virtual thread that cannot give up its carrier parks that. It parks for its own object, and
// once.
func TestKernelVirtualKeepsCarrier(t *testing.T) {
	const current, blocker, id = 700, 24, 32
	p := newFakeParker(t)
	h := newFakeHeap(t)
	h.Flags, h.ThreadObject, h.ThreadCurrent, h.ParkBlocker, h.ThreadId = HeapParkBlocker|HeapMounted, current+8,
		current, blocker, id
	p.layout(t, h.HotspotHeap)
	object := h.object(h.klass("java/lang/VirtualThread", 0), 0)
	h.reference(object+blocker, h.object(h.klass("Sync", 0), 0))
	h.mem.put64(object+id, virtualID)
	p.meta.put64(p.thread.javaThread+current, object)
	key, frozen := VirtualThread{Serial: proberSerial, Id: virtualID}, UnmountedWait{Every: 2}
	if err := errors.Join(p.p.UnmountedWaits.Put(&key, &frozen),
		p.p.VirtualCounts.Put(uint32(proberSerial), &VirtualCount{Begun: 5})); err != nil {
		t.Fatal(err)
	}
	if got := p.park(t); got.text != "Sync" {
		t.Errorf("parked for a %q", got.text)
	}
	var c VirtualCount
	if err := p.p.VirtualCounts.Lookup(uint32(proberSerial), &c); err != nil || c.Begun != 3 {
		t.Errorf("%d waits have begun, %v", c.Begun, err)
	}
	if err := p.p.UnmountedWaits.Lookup(&key, &frozen); err == nil {
		t.Error("it counts twice")
	}
}
