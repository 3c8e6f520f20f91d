//go:build linux && amd64

package bpf

import (
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A fakeParker has the probes of parking, on this thread as a JavaThread of a VM.
type fakeParker struct {
	*prober
	*fakeVM
	thread     *fakeThread
	begin, end *probe
	parked     func() // is called while the thread is parked, if it is not nil
}

func newFakeParker(t *testing.T) *fakeParker {
	t.Helper()
	q := newProber(t, Options{})
	p := &fakeParker{prober: q, fakeVM: newFakeVM(t, builds[1])}
	p.thread = p.newThread(0)
	p.HotspotProcess.Serial, p.Slot, p.StartTicks = proberSerial, proberSlot, q.vm.StartTicks
	q.vm = p.HotspotProcess
	q.announce(t)
	p.begin, p.end = p.attach(t, p.p.ParkBegin, 1), p.attach(t, p.p.ParkEnd, 1)
	return p
}

// park parks this thread while its thread-local storage is the fake one's.
func (p *fakeParker) park(t *testing.T) observed {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const archGetFS = 0x1003 // arch/x86/include/uapi/asm/prctl.h
	var fs uint64
	if _, _, errno := unix.RawSyscall(unix.SYS_ARCH_PRCTL, archGetFS, uintptr(unsafe.Pointer(&fs)), 0); errno != 0 {
		t.Fatal(errno)
	}
	// Where glibc has its vector, eight bytes on, Go's runtime has a word of runtime.m.tls that it
	// does not use.
	dtv := *(**uint64)(unsafe.Pointer(&fs))
	dtv = (*uint64)(unsafe.Add(unsafe.Pointer(dtv), 8))
	before := *dtv
	*dtv = p.meta.word(p.thread.fsbase + 8)
	p.begin.hit(arguments{})
	if p.parked != nil {
		p.parked()
	}
	p.end.hit(arguments{})
	*dtv = before
	return p.one(t)
}

// A thread that unparks one which waits for a lock is recorded, as long as that waits.
func TestKernelUnpark(t *testing.T) {
	const threadObject, blocker = 700, 24
	p := newFakeParker(t)
	unpark := p.attach(t, p.p.Unparks, 1)
	for class, want := range map[string]bool{
		"java/util/concurrent/locks/ReentrantLock$NonfairSync": true, "java/util/concurrent/locks/StampedLock": true,
		"java/util/concurrent/FutureTask":                                       false,
		"java/util/concurrent/locks/AbstractQueuedSynchronizer$ConditionObject": false,
	} {
		p.meta.put64(p.thread.slot, p.thread.javaThread)
		h := newFakeHeap(t)
		h.Flags, h.ThreadObject, h.ParkBlocker = HeapParkBlocker, threadObject, blocker
		p.layout(t, h.HotspotHeap)
		thread, lock := h.object(h.klass("java/lang/Thread", 0), 0), h.object(h.klass(class, 0), 0)
		h.reference(thread+blocker, lock)
		p.meta.put64(p.thread.javaThread+threadObject, thread)
		handle := h.allocate(8)
		h.mem.put64(handle, thread)
		unpark.hit(arguments{0, 0, handle})
		p.none(t, class+": nobody waits")
		p.parked = func() {
			unpark.hit(arguments{0, 0, handle})
			if !want {
				p.none(t, class)
			} else if got := p.one(t); got.seen.What != ObservedRelease || got.seen.Values[0] != lock {
				t.Errorf("%s: released %+v", class, got.seen)
			}
		}
		if got := p.park(t); got.text != class || got.seen.Values[1] != map[bool]uint64{true: lock}[want] {
			t.Errorf("parked for %s: %q, %+v", class, got.text, got.seen)
		}
		unpark.hit(arguments{0, 0, handle})
		p.none(t, class+": nobody waits any more")
	}
}

func TestKernelPark(t *testing.T) {
	const threadObject, blocker = 700, 24
	p := newFakeParker(t)
	for _, test := range []struct {
		name  string
		flags uint32
		shift uint32
		want  string
	}{
		{"references", HeapParkBlocker, 0, "Sync"},
		{"a handle", HeapParkBlocker | HeapThreadHandle, 0, "Sync"},
		{"narrow references", HeapParkBlocker | HeapThreadHandle | HeapNarrowOop, 0, "Sync"},
		{"coloured references", HeapParkBlocker | HeapThreadHandle | HeapColoured, 0, "Sync"},
		{"coloured references with a fixed shift", HeapParkBlocker | HeapThreadHandle | HeapColoured, 13, "Sync"},
		{"not known what it parks for", HeapThreadHandle, 0, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			p.meta.put64(p.thread.slot, p.thread.javaThread)
			h := newFakeHeap(t)
			h.Flags, h.OopColourShift, h.ThreadObject, h.ParkBlocker = test.flags, test.shift, threadObject, blocker
			h.NarrowOopBase, h.NarrowOopShift = h.mem.base-64, 3
			p.layout(t, h.HotspotHeap)
			object := h.object(h.klass("java/lang/Thread", 0), 0)
			sync := h.object(h.klass("Sync", 0), 0)
			h.reference(object+blocker, sync)
			to := h.coloured(object) // native references are never narrow
			if test.flags&HeapThreadHandle != 0 {
				cell := h.allocate(8)
				h.mem.put64(cell, to)
				to = cell
			}
			p.meta.put64(p.thread.javaThread+threadObject, to)
			got := p.park(t)
			if got.seen.What != ObservedPark || got.seen.Count != 2 || got.seen.Values[0] == 0 ||
				got.text != test.want {
				t.Errorf("%+v for a %q, want a %q", got.seen, got.text, test.want)
			}
			if want := map[bool]uint64{true: sync}[test.want != ""]; got.seen.Object != want {
				t.Errorf("an object at %#x, want %#x", got.seen.Object, want)
			}
			if test.want == "" {
				return
			}
			for _, without := range []struct {
				name string
				lose func()
			}{
				{"parked for nothing", func() { h.mem.put64(object+blocker, 0) }},
				{"no object", func() { p.meta.put64(p.thread.javaThread+threadObject, 0) }},
				{"no thread", func() { p.meta.put64(p.thread.slot, 0) }},
			} {
				without.lose()
				if got := p.park(t); got.text != "" || got.seen.Object != 0 {
					t.Errorf("%s: a %q at %#x", without.name, got.text, got.seen.Object)
				}
			}
		})
	}
}

// What a thread waits for as it parks is its Java code's: native frames above that are left out.
func TestProbeParkContext(t *testing.T) {
	p := newFakeParker(t)
	s := p.newStack(t, 64<<10).entry(anchor{}).compiled(p.typical(48), 0x40).compiled(p.typical(96), 0x40)
	p.thread.enter(inNative, s.here())
	p.meta.put64(p.thread.javaThread+uint64(p.ThreadStackBase), s.mem.end())
	got := p.park(t)
	compare(t, got.Sample, s.want(), EndRoot)
	if got.Flags != SampleAttached|SampleJavaThread|SampleJavaFrames || got.Attachment != proberSerial {
		t.Errorf("flags %#x of VM %d", got.Flags, got.Attachment)
	}
}

// A thread that is found by its id is known when it has parked once, though nobody has seen it
// before: the VM has its JavaThread in a register. What is in registers is another thread's, or
// nothing of the kind, as often as not.
func TestKernelParkOfNewThread(t *testing.T) {
	const threadObject, blocker = 700, 24
	q := newProber(t, Options{})
	p := &fakeParker{prober: q, fakeVM: newFakeVM(t, builds[1])}
	p.begin, p.end = p.attach(t, p.p.ParkBegin, 1), p.attach(t, p.p.ParkEnd, 1)
	for i, test := range []struct {
		name     string
		flags    uint32 // flags of the heap
		register func(p *fakeParker) uint64
		class    string
		known    bool
	}{
		{"in a register", HeapParkBlocker, func(p *fakeParker) uint64 { return p.thread.javaThread }, "Sync", true},
		{"not known what it parks for", 0, func(p *fakeParker) uint64 { return p.thread.javaThread }, "", true},
		{"nowhere", HeapParkBlocker, func(*fakeParker) uint64 { return 0 }, "", false},
		{"no address", HeapParkBlocker, func(*fakeParker) uint64 { return poison }, "", false},
		{"another thread's", HeapParkBlocker, func(p *fakeParker) uint64 {
			p.meta.put32(p.thread.osThread+uint64(p.OsThreadId), p.thread.ownTID+1)
			return p.thread.javaThread
		}, "", false},
		{"a compiler's", HeapParkBlocker, func(p *fakeParker) uint64 {
			p.meta.put64(p.thread.javaThread, fakeVtable+0x100)
			return p.thread.javaThread
		}, "", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			p.thread = p.newThreadByID(0)
			p.thread.ownTID = uint32(unix.Gettid())
			p.meta.put32(p.thread.osThread+uint64(p.OsThreadId), p.thread.ownTID)
			// Another VM each time, in which nothing is known of this thread.
			p.HotspotProcess.Serial, p.Slot, p.StartTicks = uint32(proberSerial+i), proberSlot, q.vm.StartTicks
			q.vm = p.HotspotProcess
			q.announce(t)
			h := newFakeHeap(t)
			h.Serial, h.Flags, h.ThreadObject, h.ParkBlocker = q.vm.Serial, test.flags, threadObject, blocker
			p.layout(t, h.HotspotHeap)
			object := h.object(h.klass("java/lang/Thread", 0), 0)
			h.reference(object+blocker, h.object(h.klass("Sync", 0), 0))
			p.meta.put64(p.thread.javaThread+threadObject, object)
			register := test.register(p)
			for _, seen := range []uint64{register, 0} { // once it is known, the register may hold anything
				p.begin.hit(arguments{})
				p.end.hit(kept(seen))
				got := p.one(t)
				if got.text != test.class || got.Flags&SampleJavaThread != 0 != test.known {
					t.Errorf("%#x in a register: parked for a %q, flags %#x; want a %q", seen, got.text, got.Flags,
						test.class)
				}
			}
		})
	}
}
