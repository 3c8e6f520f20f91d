//go:build linux && amd64

package bpf

import (
	"testing"
)

// Nothing is built on what user space did not receive.
func TestKernelPartialLost(t *testing.T) {
	everyConfirm(t, func(t *testing.T, opts contextOptions) {
		p := newPartial(t, opts, 64<<10)
		k := int(opts.confirm)
		a := p.vm.typical(64)
		p.compiled(a, 0x40, 0x48, 0x50, 0x58, 0x60, 0x68)
		if got := p.w.lose(t, p.request()); got.Shared.Base != 0 {
			t.Errorf("the first sample is built on %d", got.Shared.Base)
		}
		p.take("the first one was lost", 0)
		p.take("the same", 6-1-k)
		p.compiled(a, 0x70)
		lost := p.w.lose(t, p.request())
		if lost.Shared.Base != p.serial {
			t.Errorf("the lost sample is built on %d, want %d", lost.Shared.Base, p.serial)
		}
		p.compiled(a, 0x78)
		p.take("after one was lost", 0)
		p.take("the same", 8-1-k)
		for range 3 {
			p.w.lose(t, p.request())
		}
		p.take("after several were lost", 0)
	})
}

// Threads take turns in the places for their stacks; one that lost its place is told whole.
func TestKernelPartialDisplaced(t *testing.T) {
	everyConfirm(t, func(t *testing.T, opts contextOptions) {
		p := newPartial(t, opts, 64<<10)
		k := int(opts.confirm)
		p.compiled(p.vm.typical(64), 0x40, 0x48, 0x50, 0x58, 0x60, 0x68)
		displaced := p.w.counter(t, StacksDisplaced)
		count := func(why string, want uint64) {
			t.Helper()
			if got := p.w.counter(t, StacksDisplaced) - displaced; got != want {
				t.Errorf("%s: %d stacks displaced, want %d", why, got, want)
			}
		}
		p.take("a thread", 0)
		p.take("the same", 6-1-k)
		first := *p.th
		count("one thread", 0)

		p.th.tid += keptStacks
		p.take("another thread in its place", 0)
		p.take("the same", 6-1-k)
		count("two threads", 1)

		other := *p.th
		*p.th = first
		p.take("the first one again", 0)
		count("the first one again", 2)
		p.th.born++
		p.take("its tid given to another", 0)
		count("another with that tid", 3)

		*p.th = other
		p.take("of those that take turns, the second", 0)
		count("the second again", 4)
		alone := *p // its serials are its own
		alone.received = splicer{}
		alone.th = p.vm.newThread(p.top().mem.end())
		alone.take("a thread with a place of its own", 0)
		p.take("the second once more", 6-1-k)
		alone.take("the one with a place of its own", 6-1-k)

		p.w.attach(t, p.vm)
		p.take("a VM that was attached anew", 0)
		p.take("the same", 6-1-k)
		count("attached anew", 4)
	})
}

// A thread on another CPU holds the place for its stack: this one's sample is whole, and says
// nothing of what is kept.
func TestKernelPartialBusy(t *testing.T) {
	p := newPartial(t, contextOptions{confirm: 2}, 64<<10)
	p.compiled(p.vm.typical(64), 0x40, 0x48, 0x50, 0x58, 0x60, 0x68)
	p.take("before", 0)
	slot := p.th.tid % keptStacks
	kept, err := p.w.KeptStacks.LookupBytes(slot)
	if err != nil {
		t.Fatal(err)
	}
	setBusy := func(busy byte) {
		t.Helper()
		kept[0] = busy // the lowest byte of kept_stack.busy
		if err := p.w.KeptStacks.Put(slot, kept); err != nil {
			t.Fatal(err)
		}
		p.w.busy = busy != 0
	}
	setBusy(1)
	defer setBusy(0)
	for _, req := range []WalkTestRequest{p.request(), p.request()} {
		got := p.w.take(t, req)
		compare(t, got.Sample, p.top().want(), EndRoot)
		if got.Flags&SampleShared != 0 {
			t.Errorf("flags %#x", got.Flags)
		}
	}
	setBusy(0)
	p.take("not busy any more", 6-1-2)
}

// After a process has executed another program, nothing is known of its stack.
func TestKernelPartialExec(t *testing.T) {
	w := newContextWalker(t, contextOptions{mode: ModePartial})
	s := nativeStack(t, 10)
	req := s.request()
	req.Tid = 77
	take := func(exec uint32) SharedStack {
		t.Helper()
		req.Exec = exec
		return *w.take(t, req).Shared
	}
	take(1)
	if got := take(1); got.Frames != 10-1-DefaultConfirmLevels {
		t.Errorf("the same program shares %d frames", got.Frames)
	}
	if got := take(2); got.Frames != 0 {
		t.Errorf("the next one shares %d frames", got.Frames)
	}
}
