//go:build linux && amd64

package bpf

import (
	"slices"
	"testing"
)

// ends are the threads that ended since the last call.
func (a *fakeAllocator) ends(t *testing.T) (all []EndedThread) {
	t.Helper()
	drain(t, a.o, func(raw []byte) {
		if Kind(raw) != EventVMThreadEnd {
			return
		}
		e, err := DecodeEndedThread(slices.Clone(raw))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, *e)
	})
	return all
}

// counting has the VM count what threads have allocated, and returns what sets a thread's count and
// the used part of its buffer.
func (a *fakeAllocator) counting(t *testing.T) func(thread, allocated, used uint64) {
	t.Helper()
	h := &a.heap.HotspotHeap
	h.TlabTop, h.ThreadAllocated, h.ThreadOs, h.OsThreadId = 72, 88, 96, 8
	os := a.heap.allocate(64)
	a.heap.mem.put32(os+uint64(h.OsThreadId), 4711)
	a.layout(t, *h)
	return func(thread, allocated, used uint64) {
		const buffer = 0x7_0000_0000
		a.heap.mem.put64(thread+uint64(h.TlabStart), buffer)
		a.heap.mem.put64(thread+uint64(h.TlabTop), buffer+used)
		a.heap.mem.put64(thread+uint64(h.TlabEnd), buffer+tlab)
		a.heap.mem.put64(thread+uint64(h.ThreadAllocated), allocated)
		a.heap.mem.put64(thread+uint64(h.ThreadOs), os)
	}
}

// A thread that ends says what it has allocated, and up to which byte an end of a buffer stood for
// it.
func TestKernelThreadEnd(t *testing.T) {
	a := newFakeAllocator(t)
	set := a.counting(t)
	removed := a.attach(t, a.p.ThreadRemoved, 1)
	pinned(t)
	end := func(what string, allocated, sited uint64) {
		t.Helper()
		removed.hit(arguments{a.thread})
		all := a.ends(t)
		if len(all) != 1 || all[0].Thread != a.thread || all[0].OwnTid != 4711 || all[0].Allocated != allocated ||
			all[0].Sited != sited {
			t.Errorf("%s: %+v, want %d bytes, of which %d had a site", what, all, allocated, sited)
		}
	}
	a.forget(t)
	set(a.thread, 500, 100)
	end("nothing was observed", 600, 0)
	set(a.thread, 0, 16)
	a.allocate(16, false) // the first object of its first buffer
	set(a.thread, tlab, 24)
	a.allocate(24, false) // ends that, and stands for all before it
	set(a.thread, tlab, 5000)
	end("in its second buffer", tlab+5000, tlab)
	set(a.thread, 1<<20, 0)
	a.allocate(1<<20, true) // stands for itself
	end("an object outside", 1<<20, 1<<20)
	end("again", 1<<20, 0) // what was known of the thread is forgotten
}

// Threads that end with their VM say so too, and then it itself.
func TestKernelVMEnd(t *testing.T) {
	a := newFakeAllocator(t)
	set := a.counting(t)
	ends := a.attach(t, a.p.VmEnds, 1)
	const next = 104 // in a thread
	second := a.heap.allocate(128)
	set(a.thread, 500, 100)
	set(second, 0, 30)
	a.heap.mem.put64(a.thread+next, second)
	static, list, table := a.heap.allocate(8), a.heap.allocate(64), a.heap.allocate(64)
	a.heap.mem.put64(table, a.thread)
	a.heap.mem.put64(table+8, second)
	a.heap.mem.put32(list+4, 2)
	a.heap.mem.put64(list+16, table)
	h := &a.heap.HotspotHeap
	h.ThreadList = static
	for name, layout := range map[string]func(){
		"a table": func() {
			h.ListLength, h.ListThreads = 4, 16
			a.heap.mem.put64(static, list)
		},
		"a linked list": func() {
			h.ListLength, h.ListThreads, h.ThreadNext = 0, 0, next
			a.heap.mem.put64(static, a.thread)
		},
	} {
		layout()
		a.layout(t, *h)
		ends.hit(arguments{a.thread})
		all := a.ends(t)
		if len(all) != 3 || all[0].Thread != a.thread || all[0].Allocated != 600 || all[1].Thread != second ||
			all[1].Allocated != 30 ||
			all[0].Sited != NotSited || all[2].Thread != 0 || all[2].Allocated != 0 {
			t.Errorf("%s: %+v", name, all)
		}
	}
}
