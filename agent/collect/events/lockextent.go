package events

import (
	"math"
	"slices"
	"time"
	"weak"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// Why waits for locks are missing, or only estimated.
const (
	lockLate     = "threads were already waiting when the probes were attached"
	lockThinned  = "the budget (--budget) is too small to record each one"
	lockPartly   = "probes were not attached all the time, or records were lost"
	lockLong     = "waits longer than an observed time slice are not seen"
	lockUnplaced = "the stacks of some threads that still waited could not be read"
	lockSurveyed = "virtual threads were seen waiting too seldom to estimate how long all of them did"
)

// A lateWait is how many threads of a process waited for locks when probes came to it, at that time
// of CLOCK_MONOTONIC.
type lateWait struct {
	process weak.Pointer[guest.Process] // it may have ended long ago
	at      time.Duration
	threads int
	virtual bool
}

// maxLateWaits bounds those that are kept: the last ones.
const maxLateWaits = 1 << 10

// noteLate notes threads that waited when probes came.
func (l *lockWaits) noteLate(p *guest.Process, at time.Duration, threads int, virtual bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if threads == 0 {
		return
	}
	if len(l.late) == maxLateWaits {
		l.late = slices.Delete(l.late, 0, maxLateWaits/2)
	}
	l.late = append(l.late, lateWait{weak.Make(p), at, threads, virtual})
}

// forgetLate forgets the virtual threads of p that waited when probes came: their time is known.
func (l *lockWaits) forgetLate(p *guest.Process) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.late = slices.DeleteFunc(l.late, func(w lateWait) bool { return w.process == weak.Make(p) && w.virtual })
}

// lateTime is how long threads of p waited at most in a window before probes came.
func (l *lockWaits) lateTime(w *fold.Window, p *fold.Process) (sum time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, late := range l.late {
		if late.process == weak.Make(p.Process) && late.at > w.Began && late.at <= w.Ended {
			sum += time.Duration(late.threads) * (late.at - w.Began)
		}
	}
	return sum
}

// lockExtent says how much of the waits for locks in a window was observed; all are the events of
// p. There is what the hits of the probes stand for, recorded or not, and what there was before the
// probes came. That is the time for which the VM's list of threads says that threads had waited, or
// what the rate of waits since then gives, whichever is more.
func (e *Source) lockExtent(
	w *fold.Window, p *fold.Process, all []*profile.Events, covered *fold.CoveredParts,
) []profile.Extent {
	if e.locks == nil || !p.HasCalls() {
		return nil
	}
	x := profile.Extent{
		Subject: profile.Locks.String(), What: "lock wait time", Unit: "nanoseconds",
		Source: "probe hits and the JVM's thread list",
	}
	miss := func(amount float64, why string) {
		if amount > 0 {
			x.Miss(amount, why)
		}
	}
	if i := slices.IndexFunc(all, func(e *profile.Events) bool { return e.Kind == profile.Locks }); i >= 0 {
		events := all[i]
		all, recorded, unplaced := w.EventSet(p).ByKind(profile.Locks).LockTimes(covered)
		for i := range events.Rows {
			if row := &events.Rows[i]; !events.Kind.Apart(&row.EventLabels) {
				x.There += row.Values[events.Kind.Main()]
			}
		}
		x.Observed = max(recorded-unplaced, 0)
		miss(all-recorded, lockThinned)
		miss(x.There-all, lockPartly)
		miss(unplaced, lockUnplaced)
		if c := events.Coverage; c != nil && math.IsInf(c.Within(), 1) {
			why := lockSurveyed
			if c.Partial() {
				why = lockPartly
			}
			x.Miss(0, why)
		}
		if w.EventSet(p).ByKind(profile.Locks).LacksLong(covered) {
			x.Miss(0, lockLong)
		}
	}
	late, why := float64(e.locks.lateTime(w, p)), lockLate
	if before := x.There * covered.LateShare(profile.Locks, p.Process); before > late {
		late, why = before, fold.NotAttached
	}
	x.There += late
	miss(late, why)
	return []profile.Extent{x}
}
