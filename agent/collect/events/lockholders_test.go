package events

import (
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
)

// TestHeldLock has an owner release a lock at 100 to one of two waiters, which has it from 110 to
// 120 and hands it to the other.
func TestHeldLock(t *testing.T) {
	const lock, owner, waiter = 0x1000, 1, 2
	var h lockHolders
	p := &fold.Process{}
	id := lockID{p, lock}
	stack := []guest.RawFrame{{Kind: guest.RawReturn}}
	by := func(tid uint32) *fold.Waker { return &fold.Waker{Process: p, TID: tid, Stack: stack} }
	h.release(id, 100, by(owner))
	h.acquire(id, waiter, 110)
	h.release(id, 120, by(waiter))
	l := h.of[id]
	for when, want := range map[uint64]uint32{1: owner, 99: owner, 100: 0, 109: 0, 110: waiter, 119: waiter, 120: 0,
		129: 0} {
		got := uint32(0)
		if who := l.at(when, 130); who != nil {
			got = who.TID
		}
		if got != want {
			t.Errorf("at %d thread %d had the lock, want %d", when, got, want)
		}
	}
	if who := l.at(105, 115); who != nil { // a release after the end of the wait says nothing of it
		t.Errorf("thread %d had the lock after the wait", who.TID)
	}
	if who := h.during(lockID{p, lock + 8}, 1, 100); who != nil {
		t.Errorf("thread %d had another lock", who.TID)
	}
	h.release(id, 200, by(owner))
	if n := len(l.holders); n != 2 {
		t.Errorf("%d holders are kept of two", n)
	}
	for i := range uint64(3 * maxReleases) {
		h.release(id, 300+i, by(owner))
	}
	if n := len(l.releases); n > maxReleases {
		t.Errorf("%d releases are kept", n)
	}
	for i := range uint64(3 * maxHeldLocks) {
		h.release(lockID{p, 8 * i}, 1, by(owner))
	}
	if n := len(h.of); n > maxHeldLocks {
		t.Errorf("%d locks are kept", n)
	}
}
