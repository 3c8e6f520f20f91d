package events

import (
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// lockHolders know who had locks for which threads waited: a thread that releases a lock to a
// waiter had it until then, from the release before or from when it acquired the lock itself. The
// zero value is ready to use. Only functions that have the State use it.
type lockHolders struct {
	of map[lockID]*heldLock
	n  uint64 // releases so far
}

// A lockID is what the kernel side knows a lock by while threads wait for it.
type lockID struct {
	process *fold.Process
	lock    uint64
}

// A heldLock is what is known of one lock.
type heldLock struct {
	releases []release     // the last ones, in order
	holders  []*fold.Waker // the last ones that differ
	// acquired is when threads acquired the lock that waited for it and have not released it to a
	// waiter since.
	acquired map[uint32]uint64
	used     uint64 // lockHolders.n when it was last used
}

// A release is the end of a time in which a thread had a lock: ns of CLOCK_MONOTONIC.
type release struct {
	from, at uint64
	holder   *fold.Waker
}

// Bounds on what is kept. Of what is beyond them, holders are not known.
const (
	maxHeldLocks    = 256
	maxReleases     = 1 << 10 // releases that are kept of a lock
	maxHolders      = 8       // different holders that are kept of a lock
	maxHolderFrames = 128     // frames that are kept of a stack, 24 bytes each
	maxAcquired     = 1 << 10 // threads of a lock
)

func (h *lockHolders) lock(id lockID) *heldLock {
	h.n++
	l := h.of[id]
	if l == nil {
		if h.of == nil {
			h.of = map[lockID]*heldLock{}
		}
		if len(h.of) >= maxHeldLocks {
			h.forgetOldest()
		}
		l = &heldLock{acquired: map[uint32]uint64{}}
		h.of[id] = l
	}
	l.used = h.n
	return l
}

// forgetOldest forgets the half of the locks that were not used for longest.
func (h *lockHolders) forgetOldest() {
	var used []uint64
	for _, l := range h.of {
		used = append(used, l.used)
	}
	slices.Sort(used)
	middle := used[len(used)/2]
	for id, l := range h.of {
		if l.used <= middle {
			delete(h.of, id)
		}
	}
}

// forgetEnded forgets the locks of processes that have ended.
func (h *lockHolders) forgetEnded() {
	maps.DeleteFunc(h.of, func(id lockID, _ *heldLock) bool { return id.process.Exited.Load() })
}

// release notes that a thread releases a lock, with its stack, of which it makes a copy.
func (h *lockHolders) release(id lockID, at uint64, by *fold.Waker) {
	l := h.lock(id)
	r := release{at: at, holder: l.holder(by)}
	if n := len(l.releases); n > 0 {
		r.from = l.releases[n-1].at
	}
	r.from = max(r.from, l.acquired[by.TID])
	delete(l.acquired, by.TID)
	if len(l.releases) >= maxReleases {
		l.releases = append(l.releases[:0], l.releases[maxReleases/2:]...)
	}
	l.releases = append(l.releases, r)
}

// holder returns the copy of a holder that is kept.
func (l *heldLock) holder(by *fold.Waker) *fold.Waker {
	by.Stack = by.Stack[:min(len(by.Stack), maxHolderFrames)]
	for _, known := range l.holders {
		if known.TID == by.TID && known.Thread == by.Thread && known.Epoch == by.Epoch &&
			slices.Equal(known.Stack, by.Stack) {
			return known
		}
	}
	if len(l.holders) >= maxHolders {
		l.holders = slices.Delete(l.holders, 0, 1)
	}
	kept := *by
	kept.Stack = slices.Clone(by.Stack)
	l.holders = append(l.holders, &kept)
	return &kept
}

// during returns who had a lock at a moment of a wait, which is drawn: so of many waits, as large a
// part is under a holder as that had the lock while they lasted. It returns nil if that was not
// seen.
func (h *lockHolders) during(id lockID, begin, end uint64) *fold.Waker {
	l := h.of[id]
	if l == nil || end <= begin {
		return nil
	}
	return l.at(begin+rand.Uint64N(end-begin), end)
}

// at returns who was seen to have the lock at a time before end.
func (l *heldLock) at(when, end uint64) *fold.Waker {
	i, _ := slices.BinarySearchFunc(l.releases, when+1, func(r release, when uint64) int {
		switch {
		case r.at < when:
			return -1
		case r.at > when:
			return 1
		}
		return 0
	})
	if i == len(l.releases) || l.releases[i].at > end || when < l.releases[i].from {
		return nil
	}
	return l.releases[i].holder
}

// acquire notes that a thread has acquired a lock after a wait.
func (h *lockHolders) acquire(id lockID, tid uint32, at uint64) {
	l := h.lock(id)
	if len(l.acquired) >= maxAcquired {
		clear(l.acquired)
	}
	l.acquired[tid] = at
}

// needNames calls need for the frames of holders of p's locks.
func (h *lockHolders) needNames(p *fold.Process, need func(guest.RawFrame)) {
	for id, l := range h.of {
		if id.process != p {
			continue
		}
		for _, by := range l.holders {
			for _, f := range by.Stack {
				need(f)
			}
		}
	}
}

// handleRelease notes a release of a lock. It returns false if the record is malformed.
func (e *Source) handleRelease(s *fold.State, o *bpf.Observation) (ok bool) {
	if o.Seen.Count < 1 {
		return false
	}
	p := e.observedProcess(s, o)
	e.stack = observedStack(e.stack[:0], o, p.Attachment.Load())
	e.holders.release(lockID{p, o.Seen.Values[0]}, o.Time, &fold.Waker{
		Process: p, PID: o.Pid, TID: o.Tid, Thread: p.NameOf(o.Tid, o.Comm), Epoch: o.ClassEpoch, Stack: e.stack,
	})
	return true
}
