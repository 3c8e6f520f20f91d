package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/calls"
	"github.com/vmprof-agent/vmprof-agent/agent/calls/estimate"
	"github.com/vmprof-agent/vmprof-agent/agent/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/retry"
	"github.com/vmprof-agent/vmprof-agent/agent/target"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// estimateDeadline is how long the end of a window waits for all estimates.
const estimateDeadline = 5 * time.Second

// leastSamples of a guest are worth an estimate.
const leastSamples = 20

// An estimated is what came out for one guest.
type estimated struct {
	calls       []*profile.Calls
	credibility profile.Credibility
	windows     int    // that were heard
	note        string // what a reader must know, or ""
	failed      bool   // there is none; the note says why
}

// keepEstimate is when estimates are made that outlive their process: more often at first, as most processes that end
// are young.
var keepEstimate = retry.Backoff{First: 2 * time.Second}

// keep makes an estimate of the longest window that is open, if it is time. A worker has p.
func (e *estimator) keep(g *target.VM, p *fold.Process, own *estimatedGuest) {
	now := monotonic()
	if !own.keep.Due(now) {
		return
	}
	e.agent.mu.Lock()
	w := e.agent.longest(p)
	if w == nil {
		e.agent.mu.Unlock()
		return
	}
	task := w.estimateTask(p, now)
	e.agent.mu.Unlock()
	kept, err := e.estimateNow(g, task)
	if err != nil {
		e.log.Debug("no estimate", "pid", p.PID, "err", err)
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	own.kept, own.keptAt, own.keptSince = kept, now, task.since
}

// longest returns the window that has been open longest of those that have samples of p; mu is held.
func (a *Agent) longest(p *fold.Process) (longest *Window) {
	for w := range a.windows {
		if w.processes[p] != nil && (longest == nil || w.began < longest.began) {
			longest = w
		}
	}
	return longest
}

// An estimateTask is what an estimate of one guest in one window is made of.
type estimateTask struct {
	process *fold.Process
	top     fold.TopEdges // of all threads
	since   time.Duration // begin of the window, CLOCK_MONOTONIC
	length  time.Duration
	reading profileReading
}

// estimateTask collects it; agent.mu is held, or the window is closed.
func (w *Window) estimateTask(p *fold.Process, now time.Duration) estimateTask {
	t := estimateTask{process: p, since: w.began, length: now - w.began}
	for _, thread := range w.processes[p] {
		for i := range thread.Trees {
			t.top.AddTree(&thread.Trees[i])
		}
	}
	if s := w.calls[p]; s != nil {
		t.reading = s.reading
	}
	return t
}

// estimate returns the calls of one guest. If it is gone, or the estimate takes longer than ctx allows, it is the last one that
// was made in the window.
func (e *estimator) estimate(ctx context.Context, t estimateTask) (out estimated, err error) {
	made := make(chan estimated, 1)
	err = e.agent.resolver.WithVM(ctx, t.process.Process, func(g *target.VM) error {
		out, err := e.estimateNow(g, t)
		made <- out
		return err
	})
	if err == nil {
		return <-made, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if kept, ok := e.guests[t.process].until(err, t); ok {
		return kept, nil
	}
	return out, err
}

// until returns the estimate that was kept of a guest, where err is why there is none of the whole window.
func (own *estimatedGuest) until(err error, t estimateTask) (kept estimated, ok bool) {
	if own == nil || own.keptSince < t.since || own.keptAt <= own.keptSince || own.keptAt > t.since+t.length {
		return kept, false
	}
	kept = own.kept
	part := (own.keptAt - own.keptSince).Round(time.Second / 10)
	switch {
	case errors.Is(err, proc.ErrGone):
		kept.note = fmt.Sprintf("process %d ended: its calls cover only %v of the window", t.process.PID, part)
	case errors.Is(err, context.DeadlineExceeded):
		kept.note = fmt.Sprintf("the estimate of the calls of process %d was not ready in time: they cover only %v of the window",
			t.process.PID, part)
	default:
		return estimated{}, false
	}
	return kept, true
}

// estimateNow makes the estimate. A worker has the process.
func (e *estimator) estimateNow(g *target.VM, t estimateTask) (out estimated, err error) {
	vm, err := target.As[vmruntime.CallCounter](g)
	if err != nil {
		return out, err
	}
	heard := e.heardSince(t.process, t.since)
	in := newEstimateInput(g, vm, e.agent.resolver.ClassEpoch(g), t.top, heard, t.length, e.agent.period(), e.hitTime())
	if err := in.readProfiles(&t.reading, monotonic()); err != nil {
		return out, fmt.Errorf("read counters: %w", err)
	}
	r := estimate.Estimate(&in.Input, estimate.Options{Logical: e.logical})
	out.credibility, out.windows = r.Credibility, len(in.Windows)
	if lost := in.lost.String(); lost != "" {
		out.note = fmt.Sprintf("calls of process %d are estimated %s", t.process.PID, lost)
	}
	out.calls, err = in.graphs(r, t.length)
	return out, err
}

// graphs names an estimate: a graph for each basis, in calls in the time of the window.
func (in *estimateInput) graphs(r *estimate.Result, length time.Duration) ([]*profile.Calls, error) {
	places := make([]vmruntime.Scope, 0, 2*len(r.Calls))
	for _, c := range r.Calls {
		places = append(places, in.scope(c.Caller), in.scope(estimate.Place{Method: c.Callee, BCI: -1}))
	}
	frames, err := in.vm.Names(places)
	if err != nil {
		return nil, fmt.Errorf("name methods: %w", err)
	}
	byBasis := map[profile.Basis]*profile.Calls{}
	for i, c := range r.Calls {
		caller, callee := frames[2*i], frames[2*i+1]
		edge := profile.Edge{
			Caller: in.symbol(caller, c.Caller.Method), Callee: in.symbol(callee, c.Callee),
			Site: profile.Site{Line: int32(caller.Line), Offset: c.Caller.BCI},
		}
		basis, within := basisOf(c), profile.Interval{Low: c.Low * length.Seconds(), High: c.High * length.Seconds()}
		weight := c.Rate * length.Seconds()
		if basis == profile.Unmeasured {
			within.Low = max(within.Low, 1) // it was seen
			weight = within.Low
		}
		of := byBasis[basis]
		if of == nil {
			of = &profile.Calls{Engine: calls.Hotspot, Basis: basis, Graph: &profile.Graph{Limit: fold.MaxEdges}, Intervals: map[profile.Edge]profile.Interval{}}
			byBasis[basis] = of
		}
		if of.Graph.Add(edge, weight); of.Graph.Weight(edge) > 0 {
			of.Intervals[edge] = of.Intervals[edge].Add(within)
		}
	}
	var out []*profile.Calls
	for _, basis := range []profile.Basis{profile.Counted, profile.Estimated, profile.Inferred, profile.Sampled, profile.Unmeasured} {
		if c := byBasis[basis]; c != nil {
			out = append(out, c)
		}
	}
	return out, nil
}

// unmeasured is the factor from which on an interval says next to nothing: from a thirtieth to thirty times as many.
const unmeasured = 30

// basisOf is the basis of an estimate. What was never checked and is almost never entered has an interval of all that a
// program can do.
func basisOf(c estimate.Call) profile.Basis {
	if within := (profile.Interval{Low: c.Low, High: c.High}); within.Factor() > unmeasured {
		return profile.Unmeasured
	}
	return c.Basis
}

func (in *estimateInput) scope(p estimate.Place) vmruntime.Scope {
	if p.Method < 0 || int(p.Method) >= len(in.methods) {
		return vmruntime.Scope{BCI: -1}
	}
	return vmruntime.Scope{Method: in.methods[p.Method], BCI: int(p.BCI)}
}

// symbol is the method of a frame as call graphs have it; of what has no name a marker.
func (in *estimateInput) symbol(f vmruntime.Frame, m estimate.MethodID) symbolize.Symbol {
	if m == estimate.NoMethod {
		return target.Marker("[VM]")
	}
	if f.Function == "" {
		return target.Marker("[unknown]")
	}
	f.Line = 0
	return in.guest.MethodSymbols()(f)
}
