package events

import (
	"context"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// Off-CPU and wall-clock time have no waits of virtual threads that have left their carriers. A
// look at the class library's list when a window ends says how many threads wait, and so about how
// much time that is.

// apartThreads are how many virtual threads waited without a carrier when the last window ended, by
// process. Only functions that have the State use it.
type apartThreads map[*guest.Process]float64

// wantsApart reports whether a kind of events is recorded that lacks these waits.
func (e *Source) wantsApart() bool {
	return e.Options.Kinds[profile.OffCPU] || e.Options.Kinds[profile.Wall]
}

// lookApart counts these threads in all processes that have had virtual threads. Those that cannot
// be read are left out.
func (e *Source) lookApart() apartThreads {
	if !e.wantsApart() {
		return nil
	}
	var ran []*guest.Process
	e.services.Owner.Do(func(s *fold.State) {
		for _, p := range s.Table {
			if e.RanVirtual(p.Process) && !p.Exited.Load() {
				ran = append(ran, p.Process)
			}
		}
	})
	found := apartThreads{}
	for _, p := range ran {
		waiting, err := withLister(context.Background(), e, p, waitingApart)
		if err != nil {
			e.services.Log.Debug("cannot count virtual threads that wait", "pid", p.PID, "err", err)
			continue
		}
		sum := 0.
		for _, weight := range waiting {
			sum += weight
		}
		found[p] = sum
	}
	return found
}

// waitingApart draws virtual threads, and returns what those stand for that wait without a carrier.
func waitingApart(l vmruntime.VirtualLister) (weights []float64, err error) {
	threads, _, err := drawVirtual(l, mostSurveyed)
	for i := range threads {
		if t := &threads[i]; !t.OnCarrier && t.VirtualDoing.State != vmruntime.VirtualRuns {
			weights = append(weights, t.Weight)
		}
	}
	return weights, err
}

// extent is the time that one kind of a process's events lacks in a window, as virtual threads
// waited apart, estimated from the look at its end. What of that kind was observed has extents of
// its own.
func (a apartThreads) extent(kind profile.EventKind, w *fold.Window, p *fold.Process) profile.Extent {
	x := profile.Extent{Subject: kind.String(), What: profile.ThreadWaits, Unit: "nanoseconds",
		Source: "the scheduler and the class library"}
	if kind == profile.Wall {
		x.What = profile.ThreadTimes
	}
	switch threads, known := a[p.Process]; {
	case !known, threads == 0: // threads that wait now and then are seldom seen by one look
		x.Miss(0, virtualApart)
	default:
		x.There = threads * float64(max(w.Ended-max(w.Began, p.Noticed), 0))
		x.Miss(x.There, virtualApart)
	}
	return x
}
