package fold

import (
	"cmp"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/cause"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// A LockWait is what more is known of a wait for a lock than how long it was.
type LockWait struct {
	Since, Until time.Duration // CLOCK_MONOTONIC
	// Counted says that windows that have ended have the part of the wait before their end.
	// Otherwise a window has all of it in which it ends.
	Counted bool
	Waiting bool   // the thread still waits: it has not acquired the lock
	Holder  *Waker // who was seen to have the lock meanwhile; nil if nobody was
}

// AddLockWait adds the part of a wait for a lock that is in the window. It returns false if the
// window does not want the process.
func (w *Window) AddLockWait(s *State, p *Process, pid, epoch uint32, e *Event) (wanted bool) {
	if !w.Wants(int(pid)) || e.Lock.Until <= w.Began {
		return false
	}
	e.Part.Apply(e)
	w.addEvent(s, p, epoch, e)
	return true
}

// lockTimes are sums of waits for locks in a window, in ns.
type lockTimes struct {
	all      float64 // time with the weights of those that were drawn
	recorded float64 // the same without the weights
	unplaced float64 // part of recorded of which no stack is known
}

// LockTimes returns the time of waits for locks that the recorded ones stand for, without the
// factor for what was lost; of those recorded alone; and the part of that of which no stack is
// known. All are ns.
func (r *Events) LockTimes(covered *CoveredParts) (all, recorded, unplaced float64) {
	sum := r.locked
	for _, l := range r.looks {
		of := &l.lookedTimes
		if covered.bySlices(l) {
			of = &l.slicedTimes
		}
		sum.all += of.all
		sum.recorded += of.recorded
		sum.unplaced += of.unplaced
	}
	return sum.all, sum.recorded, sum.unplaced
}

// lockTimesOf returns the sums to which an event is added.
func (r *Events) lockTimesOf(e *Event) *lockTimes {
	switch e.Length {
	case LengthsLooked:
		return &r.looked(e.Labels.What == monitorWait).lookedTimes
	case LengthsSliced:
		return &r.looked(e.Labels.What == monitorWait).slicedTimes
	}
	return &r.locked
}

// LacksLong reports whether waits are missing that are longer than the slices of time in which they
// are observed.
func (r *Events) LacksLong(covered *CoveredParts) bool {
	for _, l := range r.looks {
		for c := range l.lengths {
			if _, partly := covered.note(c); partly && covered.bySlices(l) {
				return true
			}
		}
	}
	for c := range r.sums {
		if _, partly := covered.note(c); partly && !c.Surveyed.Load() {
			return true
		}
	}
	return false
}

// addLock adds a wait as it is in the window that began then.
func (t *lockTimes) addLock(e *Event, began time.Duration) {
	if e.Kind.Apart(&e.Labels) {
		return
	}
	length := float64(e.Delay)
	if wait := e.Lock; wait != nil {
		length = float64(wait.Until - wait.Since)
		if wait.Counted {
			length = float64(wait.Until - max(wait.Since, began))
		}
	}
	if e.Every == Moment {
		length = e.Sums.Values[profile.Locks.Main()]
	}
	t.all += e.Sums.Values[profile.Locks.Main()]
	t.recorded += length
	if len(e.Stack) == 0 {
		t.unplaced += length
	}
}

// lockEvent returns the event as it is in the window.
func (w *Window) lockEvent(s *State, p *Process, set *EventSet, e *Event) *Event {
	const acquisitions, contentions, delay = 0, 1, 2 // profile.Locks.Values
	own, wait := *e, e.Lock
	if length := wait.Until - wait.Since; wait.Counted && length > 0 && wait.Since < w.Began {
		own.Sums.Values[contentions] = 0 // an earlier window has it
		part := float64(max(wait.Until-w.Began, 0)) / float64(length)
		own.Sums.Values[delay] *= part
		own.Sums.Known[delay] *= part
	}
	if wait.Waiting {
		own.Sums.Values[acquisitions] = 0
	}
	if wait.Holder != nil {
		own.waker = w.addWaker(s, p, e.Kind, wait.Holder, &own.Sums)
	}
	return &own
}

// nameHolder gives a wait for a lock the labels of who had it: the application's innermost method
// in the holder's stack, and the thread.
func (r *wakers) nameHolder(key *EventKey) {
	id := key.waker
	key.waker = 0
	if id == 0 {
		return
	}
	by := &r.list[id-1]
	key.Field, key.Value = holderMethod(by.stack), threadGroup(by.thread)
	if key.Field == "" {
		key.Value = ""
	}
}

// holderMethod returns the application's innermost method of a stack whose outermost frame comes
// first, or else the class library's that does not only say how threads wait; "" if the stack has
// no method of the VM's.
func holderMethod(stack []symbol.Symbol) string {
	library, any := "", ""
	for i := len(stack) - 1; i >= 0; i-- {
		v := stack[i].Value()
		if v.Kind != symbol.KindJIT && v.Kind != symbol.KindInterpreted || strings.HasPrefix(v.Function, "[") {
			continue
		}
		if !profile.InClassLibrary(v.Function) {
			return v.Function
		}
		if library == "" && !cause.Waits(v.Function) {
			library = v.Function
		}
		any = cmp.Or(any, v.Function)
	}
	return cmp.Or(library, any)
}
