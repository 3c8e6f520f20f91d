package fold

import (
	"fmt"
	"math"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/cause"
	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/target"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
)

// A Wait is the time in which a thread was off the CPU.
type Wait struct {
	Since, Until time.Duration // CLOCK_MONOTONIC
	Delay        time.Duration // the last part of it, in which the thread waited for a CPU
	State        string        // of the thread before: cause.Blocked, …
	Weight       float64       // how many waits it stands for
	Away         bool          // the thread has not come back
}

// AddWait adds a wait to all windows that want it, to each the part of it that is in the window. It returns false if there is none.
func (s *State) AddWait(p *Process, pid, epoch uint32, e *Event, wait *Wait) (wanted bool) {
	for w := range s.windows {
		wanted = w.AddWait(s, p, pid, epoch, e, wait) || wanted
	}
	return wanted
}

// AddWait adds the part of a wait that is in the window. It returns false if the window does not want the process.
func (w *Window) AddWait(s *State, p *Process, pid, epoch uint32, e *Event, wait *Wait) (wanted bool) {
	if !w.Wants(int(pid)) {
		return false
	}
	ready := max(wait.Until-wait.Delay, wait.Since)
	if wait.State == cause.Runnable || wait.State == cause.Throttled {
		ready = wait.Until
	}
	e.Kind = profile.OffCPU
	e.Every = uint32(min(max(math.Round(wait.Weight), 1), math.MaxUint32))
	for _, part := range [...]struct {
		state    string
		from, to time.Duration
	}{{wait.State, wait.Since, ready}, {cause.Runnable, ready, wait.Until}} {
		length := part.to - max(part.from, w.Began)
		if length <= 0 {
			continue
		}
		e.Labels.Place = part.state
		exact := 0.0
		if wait.Weight == 1 {
			exact = float64(length)
		}
		e.Sums = EventSums{Events: 1, Values: [profile.MaxEventValues]float64{wait.Weight, wait.Weight * float64(length), profile.ExactWaits: exact}}
		set := w.EventSet(p)
		if set.Add(e) {
			s.Want(p, e.Stack, epoch)
		}
		if wait.Away {
			set.Of(e.Kind).away.add(length, len(e.Stack) > 0)
		}
	}
	return true
}

// AddThreadTime adds how long a thread ran and existed in the window. It is called once for each thread.
func (w *Window) AddThreadTime(p *Process, t profile.ThreadTime) {
	r := w.EventSet(p).Of(profile.OffCPU)
	r.times = append(r.times, t)
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
	return fmt.Sprintf("%d threads still waited at the end, for %v together in this time; for %v of it they are in %s, as their stacks could not be read",
		a.threads, round(a.time), round(a.unknown), StillWaiting)
}

// StillWaiting stands for the stack of a thread that has not gone on since it was first seen.
const StillWaiting = "[still waiting]"

var stillWaiting = target.Marker(StillWaiting)

// nameWait sets the cause of a wait, and returns its stack without the scheduler. Idle threads have a root of their own.
func nameWait(key *EventKey, thread string, stack []symbolize.Symbol) []symbolize.Symbol {
	switch {
	case key.Place == "": // without labels
		return stack
	case key.Context == cct.Root:
		key.What = cause.OfThread(key.Place, thread)
		return foldIdle(key, thread, append(stack, stillWaiting))
	}
	what, inner := cause.Of(key.Place, thread, stack)
	key.What = what
	return foldIdle(key, thread, stack[inner:])
}

// IdleRoot is the outermost frame of threads that have nothing to do.
const IdleRoot = "[idle]"

var idleRoot = target.Marker(IdleRoot)

// foldIdle has threads with nothing to do under one root.
func foldIdle(key *EventKey, thread string, stack []symbolize.Symbol) []symbolize.Symbol {
	if !cause.IsIdle(key.What, thread, stack) {
		return stack
	}
	key.What = cause.Idle
	return append(stack, idleRoot)
}
