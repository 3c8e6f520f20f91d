package fold

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/cause"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// A Wait is the time in which a thread was off the CPU.
type Wait struct {
	Since, Until time.Duration // CLOCK_MONOTONIC
	Delay        time.Duration // the last part of it, in which the thread waited for a CPU
	State        string        // state of the thread before: cause.Blocked, …
	Weight       float64       // how many waits it stands for; 0 if only its last part was drawn
	DelayWeight  float64       // the same of that part; 0 if it is not different
	Away         bool          // the thread has not come back
	Short        bool          // Away: it would not be recorded for sure if it ended now
	SP           uint64        // the user's stack pointer
	Woken        time.Duration // when the last part began, more precisely; 0 if that is not known
	Waker        *Waker        // who ended the wait before that; nil if it is not known
	Wakers       bool          // wakers are recorded
}

// AddWait adds a wait to all windows that want it, to each the part of it that is in the window. It
// returns false if there is none.
func (s *State) AddWait(p *Process, pid, epoch uint32, e *Event, wait *Wait) (wanted bool) {
	s.Slow.Wait(s, p, epoch, e, wait)
	for w := range s.windows {
		wanted = w.AddWait(s, p, pid, epoch, e, wait) || wanted
	}
	return wanted
}

// AddWait adds the part of a wait that is in the window. It returns false if the window does not
// want the process.
func (w *Window) AddWait(s *State, p *Process, pid, epoch uint32, e *Event, wait *Wait) (wanted bool) {
	if !w.Wants(int(pid)) {
		return false
	}
	ready := max(wait.Until-wait.Delay, wait.Since)
	if wait.Woken != 0 {
		ready = min(max(wait.Woken, wait.Since), wait.Until)
	}
	runnable := wait.State == cause.Runnable || wait.State == cause.Throttled
	if runnable {
		ready = wait.Until
	}
	e.Kind = profile.OffCPU
	parts := [...]waitPart{
		{wait.State, wait.Since, ready, wait.Weight, wait.Wakers && !wait.Away && !runnable},
		{cause.Runnable, ready, wait.Until, cmp.Or(wait.DelayWeight, wait.Weight), false},
	}
	all := parts[0].value(w.Began) + parts[1].value(w.Began)
	for i := range parts {
		part := &parts[i]
		length, value := part.length(w.Began), part.value(w.Began)
		if value == 0 {
			continue
		}
		e.Every = uint32(min(max(math.Round(part.weight), 1), math.MaxUint32))
		e.Labels.Place, e.Labels.Value = part.state, ""
		squares := 0.0
		if part.weight > 1 { // both parts were drawn together, so each has its half of what they vary in common
			e.Labels.Value, squares = profile.Drawn, (1-1/part.weight)*value*all
		}
		e.Sums = EventSums{Events: 1, Values: [profile.MaxEventValues]float64{part.weight, value,
			profile.DrawSquares: squares}}
		set := w.EventSet(p)
		e.waker = 0
		if part.ended {
			e.waker = w.addWaker(s, p, e.Kind, wait.Waker, &e.Sums)
		}
		row, fresh := set.add(e)
		if fresh {
			s.Want(p, e.Stack, epoch)
		}
		w.lanes.Wait(p, e.TID, part.from-w.Began, part.to-w.Began, part.weight, row)
		if wait.Away {
			of := set.ByKind(e.Kind)
			of.away.add(length, len(e.Stack) > 0)
			if wait.Short && len(e.Stack) > 0 {
				of.seen[e.TID] = row
			}
		}
	}
	return true
}

// A waitPart is a part of a wait: until the thread is ready to run, or from then on.
type waitPart struct {
	state    string
	from, to time.Duration
	weight   float64 // as Wait.Weight
	ended    bool    // by a waker
}

// length is how long the part is in a window that began then.
func (p *waitPart) length(began time.Duration) time.Duration { return max(p.to-max(p.from, began), 0) }

// value is the time that it stands for.
func (p *waitPart) value(began time.Duration) float64 { return p.weight * float64(p.length(began)) }

// AddThreadTime adds how long a thread ran and existed in the window, up to then. It is called once
// for each thread.
func (w *Window) AddThreadTime(p *Process, t profile.ThreadTime, until time.Duration) {
	r := w.EventSet(p).ByKind(profile.OffCPU)
	r.times = append(r.times, t)
	w.lanes.Existed(p, uint32(t.TID), t.Name, until-t.Wall-w.Began, until-w.Began, t.On)
}

// AddThread adds a thread that existed from one time to another. How long it ran is not known.
func (w *Window) AddThread(p *Process, tid uint32, name string, from, until time.Duration) {
	w.EventSet(p).ByKind(profile.OffCPU)
	w.lanes.Existed(p, tid, name, from-w.Began, until-w.Began, -1)
}

// Lanes are what the threads of a process did over time, in a closed window whose events were
// named; nil if that is not known.
func (w *Window) Lanes(p *Process) *profile.Lanes {
	set := w.Events[p]
	if set == nil || set[profile.OffCPU] == nil {
		return nil
	}
	r := set[profile.OffCPU]
	return w.lanes.Lanes(p, w.Ended-w.Began, r.lastName, func(row *EventSums) string {
		return cmp.Or(r.causes[row],
			cause.Other)
	})
}

// ThreadTimes are what AddThreadTime added.
func (r *Events) ThreadTimes() []profile.ThreadTime { return r.times }

// awayTimes are of threads that had not come back to a CPU when the window ended.
type awayTimes struct {
	threads       int
	time, unknown time.Duration // unknown: of which the stack is not known
}

func (a *awayTimes) add(length time.Duration, known bool) {
	a.threads++
	a.time += length
	if !known {
		a.unknown += length
	}
}

// note explains to readers what is not known of them; it is empty if nothing is missing.
func (a *awayTimes) note() string {
	if a.unknown == 0 {
		return ""
	}
	round := func(d time.Duration) time.Duration { return d.Round(max(d/100, time.Microsecond)) }
	return fmt.Sprintf("%d threads were still waiting at the end, %v in total; %v of that is in %s, because their "+
		"stacks could not be read",
		a.threads, round(a.time), round(a.unknown), profile.StillWaiting)
}

var stillWaiting = guest.Marker(profile.StillWaiting)

// A namedStack is a stack with names, innermost frame first.
type namedStack struct {
	symbols []symbol.Symbol
	enters  bool // the place of the innermost frame of Java enters a monitor
}

// name names a context. The memory of the last one is used again.
func (s *namedStack) name(names guest.Names, tree *cct.Tree[guest.RawFrame], context cct.NodeID) {
	*s = namedStack{symbols: s.symbols[:0]}
	java := false
	for at := context; at != cct.Root; {
		n := tree.Node(at)
		name := names.Lookup(n.Key)
		s.symbols = append(s.symbols, name.Symbols...)
		if len(name.Symbols) > 0 && !java {
			kind := name.Symbols[0].Kind()
			java = kind == symbol.KindJIT || kind == symbol.KindInterpreted
			s.enters = java && name.Enters
		}
		at = n.Parent
	}
}

// nameWait sets the cause of a wait, and returns its stack without the scheduler. Idle threads have
// a root of their own. enters is that of cause.Classify.
func nameWait(key *EventKey, thread string, stack []symbol.Symbol, enters bool) []symbol.Symbol {
	switch {
	case key.Place == "": // without labels
		return stack
	case key.Context == cct.Root:
		key.What = cause.OfThread(key.Place, thread)
		return foldIdle(key, thread, append(stack, stillWaiting))
	}
	what, inner := cause.Classify(key.Place, thread, stack, enters)
	key.What = what
	return foldIdle(key, thread, stack[inner:])
}

// IdleRoot is the outermost frame of threads that have nothing to do.
const IdleRoot = "[idle]"

var idleRoot = guest.Marker(IdleRoot)

// foldIdle has threads with nothing to do under one root.
func foldIdle(key *EventKey, thread string, stack []symbol.Symbol) []symbol.Symbol {
	if !cause.IsIdle(key.What, thread, stack) {
		return stack
	}
	key.What = cause.Idle
	return append(stack, idleRoot)
}

// A LockWait is what more is known of a wait for a lock than how long it was.
type LockWait struct {
	Since, Until time.Duration // CLOCK_MONOTONIC
	// Counted says that windows that have ended have the part of the wait before their end.
	// Otherwise a window has all of it in which it ends.
	Counted bool
	Waiting bool   // the thread still waits: it has not acquired the lock
	Holder  *Waker // who was seen to have the lock during the wait; nil if nobody was
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
		if !profile.InLibrary(v.Function, v.File) {
			return v.Function
		}
		if library == "" && !cause.Waits(v.Function) {
			library = v.Function
		}
		any = cmp.Or(any, v.Function)
	}
	return cmp.Or(library, any)
}

// unclearWaits returns a note that waits may be counted with the wrong reason.
func unclearWaits(sums *EventSums) string {
	all := time.Duration(sums.Values[profile.Locks.Main()])
	return fmt.Sprintf("%d waits of java.util.concurrent, %v together, count as waits for work, because the blocker "+
		"of their threads is unknown: "+
		"some of them may have waited for locks", sums.Events, all.Round(max(all/100, time.Microsecond)))
}
