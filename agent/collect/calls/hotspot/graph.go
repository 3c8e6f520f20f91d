package hotspot

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls/estimate"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/source"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/host/retry"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// estimateDeadline is how long the end of a window waits for all estimates.
const estimateDeadline = 5 * time.Second

// leastSamples is the number of samples from which a process is estimated.
const leastSamples = 20

// Estimate estimates the calls of all processes in a closed window, before its trees are named.
func (e *Engine) Estimate(ctx context.Context, w *source.Closed) map[*fold.Process]calls.Estimated {
	ctx, cancel := context.WithTimeout(ctx, estimateDeadline)
	defer cancel()
	all := map[*fold.Process]calls.Estimated{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	set := func(p *fold.Process, out calls.Estimated) {
		mu.Lock()
		defer mu.Unlock()
		all[p] = out
	}
	for _, p := range w.Processes {
		t := taskOf(w.Window, p, w.Ended)
		if len(t.top.Edges) == 0 && t.top.Left == 0 {
			continue
		}
		if t.top.All < leastSamples {
			set(p, calls.Estimated{
				Note: fmt.Sprintf("calls of process %d are not estimated: %.0f samples are too few", p.PID,
					t.top.All),
				Extent: e.nothing(&t, "there were too few samples to estimate calls"),
			})
			continue
		}
		wg.Go(func() { // the pool's workers bound the concurrency
			var out calls.Estimated
			var err error
			if failed := e.Resolver.Attempt(guest.StageWindow, p.Process,
				func() { out, err = e.estimate(ctx, t) }); failed != nil {
				err = failed
			}
			if err != nil {
				out = calls.Estimated{Failed: true, Note: fmt.Sprintf("calls of process %d are not estimated: %v",
					p.PID, err)}
				out.Extent = e.nothing(&t, "the estimate failed")
				if errors.Is(err, context.DeadlineExceeded) {
					out.Note = fmt.Sprintf("calls of process %d are not estimated: the estimate was not ready in "+
						"time, because the machine is busy or the "+
						"JVM is large", p.PID)
				}
			}
			set(p, out)
		})
	}
	wg.Wait()
	return all
}

// keepEstimate is the schedule of estimates that are kept in case the process ends: more frequent
// at first, as most processes that end are young.
var keepEstimate = retry.Backoff{First: 2 * time.Second}

// keep makes an estimate of the longest open window, if it is time. It runs on the worker that
// handles p.
func (e *Engine) keep(g *guest.VM, p *fold.Process, own *jvm) {
	now := proc.Monotonic()
	if !own.keep.Due(now) {
		return
	}
	var t *task
	e.Owner.Do(func(s *fold.State) {
		if w := s.Longest(p); w != nil {
			made := taskOf(w, p, now)
			t = &made
		}
	})
	if t == nil {
		return
	}
	kept, err := e.estimateNow(g, *t)
	if err != nil {
		e.Log.Debug("no estimate", "pid", p.PID, "err", err)
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	own.kept, own.keptAt, own.keptSince = kept, now, t.since
}

// A task is the input for an estimate of one process in one window.
type task struct {
	process *fold.Process
	top     fold.TopEdges // busy edges of all threads
	since   time.Duration // beginning of the window, CLOCK_MONOTONIC
	length  time.Duration
	reading reading
}

// taskOf collects a task from an open window, while holding the State, or from a closed one.
func taskOf(w *fold.Window, p *fold.Process, now time.Duration) task {
	t := task{process: p, since: w.Began, length: now - w.Began}
	for _, thread := range w.Processes[p] {
		for i := range thread.Trees {
			t.top.AddTree(&thread.Trees[i])
		}
	}
	if s := w.Calls[p]; s != nil {
		if r, ok := s.Counters.(*reading); ok {
			t.reading = *r
		}
	}
	return t
}

// estimate returns the calls of one process. If it has ended, or the estimate takes longer than ctx
// allows, the result is the last estimate made in the window.
func (e *Engine) estimate(ctx context.Context, t task) (out calls.Estimated, err error) {
	made := make(chan calls.Estimated, 1)
	err = e.Resolver.WithVM(ctx, t.process.Process, func(g *guest.VM) error {
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
		all := e.nothing(&t, "they ran after the last estimate")
		if rest := all.There - kept.Extent.There; rest > 0 {
			kept.Extent.There = all.There
			kept.Extent.Miss(rest, all.Missed[0].Why)
		}
		return kept, nil
	}
	return out, err
}

// until returns the kept estimate of a process, if err prevents one of the whole window.
func (own *jvm) until(err error, t task) (kept calls.Estimated, ok bool) {
	if own == nil || own.keptSince < t.since || own.keptAt <= own.keptSince || own.keptAt > t.since+t.length {
		return kept, false
	}
	kept = own.kept
	part := (own.keptAt - own.keptSince).Round(time.Second / 10)
	switch {
	case errors.Is(err, proc.ErrGone):
		kept.Note = fmt.Sprintf("process %d ended: its calls cover only %v of the window", t.process.PID, part)
	case errors.Is(err, context.DeadlineExceeded):
		kept.Note = fmt.Sprintf("the estimate of the calls of process %d was not ready in time: they cover only %v "+
			"of the window",
			t.process.PID, part)
	default:
		return calls.Estimated{}, false
	}
	return kept, true
}

// estimateNow makes the estimate. It runs on the worker that handles the process.
func (e *Engine) estimateNow(g *guest.VM, t task) (out calls.Estimated, err error) {
	vm, err := guest.As[vmruntime.CallCounter](g)
	if err != nil {
		return out, err
	}
	observed := e.observedSince(t.process, t.since)
	in := newInput(g, vm, e.Resolver.ClassEpoch(g), t.top, observed, t.length, e.Period, e.hitTime())
	if err := in.readProfiles(&t.reading, proc.Monotonic()); err != nil {
		return out, fmt.Errorf("read counters: %w", err)
	}
	in.readWork()
	if err := in.markElsewhere(); err != nil {
		return out, fmt.Errorf("list compilations: %w", err)
	}
	r := estimate.Estimate(&in.Input, estimate.Options{Logical: e.logical})
	out.Extent = in.extent(r, e.Period)
	out.Credibility, out.Windows = r.Credibility, len(in.Windows)
	if lost := in.lost.String(); lost != "" {
		out.Note = fmt.Sprintf("calls of process %d are estimated %s", t.process.PID, lost)
	}
	if out.Calls, err = in.graphs(r, t.length); err != nil {
		return out, err
	}
	if out.Inlining, err = in.inlining(r); err == nil {
		out.Inlining.Limits = e.inlineLimits(g, t.process)
	}
	return out, err
}

// graphs names an estimate: one graph for each basis, in calls per window.
func (in *input) graphs(r *estimate.Result, length time.Duration) ([]*profile.Calls, error) {
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
		basis, within := c.Basis, profile.Interval{Low: c.Low * length.Seconds(), High: c.High * length.Seconds()}
		weight := c.Rate * length.Seconds()
		if basis == profile.Unmeasured {
			within.Low = max(within.Low, 1) // it was observed
			weight = within.Low
		}
		of := byBasis[basis]
		if of == nil {
			of = &profile.Calls{Engine: calls.Hotspot, Basis: basis, Graph: &profile.Graph{Limit: fold.MaxEdges},
				Intervals: map[profile.Edge]profile.Interval{}}
			byBasis[basis] = of
		}
		if of.Graph.Add(edge, weight); of.Graph.Weight(edge) > 0 {
			of.Intervals[edge] = of.Intervals[edge].Add(within)
		}
	}
	var out []*profile.Calls
	for _, basis := range []profile.Basis{profile.Counted, profile.Estimated, profile.Inferred, profile.Sampled,
		profile.Unmeasured} {
		if c := byBasis[basis]; c != nil {
			out = append(out, c)
		}
	}
	return out, nil
}

// sampledTime begins the extent of calls: the CPU time of sampled code, which a call profile has
// counts for or not.
func sampledTime(samples float64, period time.Duration) profile.Extent {
	return profile.Extent{
		Subject: profile.SubjectCalls, What: "calls (by their callees' sampled CPU time)", Unit: "nanoseconds",
		Source: "the CPU samples", There: samples * float64(period),
	}
}

// nothing is the extent of a process without an estimate.
func (e *Engine) nothing(t *task, why string) profile.Extent {
	samples := t.top.Left
	for _, n := range t.top.Edges {
		samples += n
	}
	x := sampledTime(samples, e.Period)
	x.Miss(x.There, why)
	return x
}

// extent is the part of the sampled code's CPU time whose methods have a number of calls. Code that
// only loops has one, as it is not called.
func (in *input) extent(r *estimate.Result, period time.Duration) profile.Extent {
	numbered := make([]bool, len(in.Methods))
	for _, c := range r.Calls {
		numbered[c.Callee] = numbered[c.Callee] || c.Basis != profile.Unmeasured
	}
	var with, without float64
	for i := range in.Edges {
		m := in.Codes[in.Edges[i].Callee].Method
		if numbered[m] || in.Codes[in.Edges[i].Callee].Loop && in.Methods[m].EntersKnown {
			with += in.Edges[i].Samples
		} else {
			without += in.Edges[i].Samples
		}
	}
	x := sampledTime(with+without+in.lost.gone+in.lost.samples, period)
	x.Observed = with * float64(period)
	for _, missed := range []struct {
		samples float64
		why     string
	}{
		{without, "nothing shows how often the code is called"},
		{in.lost.gone, "the code is gone"},
		{in.lost.samples, "there were too many call sites"},
	} {
		if missed.samples > 0 {
			x.Miss(missed.samples*float64(period), missed.why)
		}
	}
	return x
}

func (in *input) scope(p estimate.Place) vmruntime.Scope {
	if p.Method < 0 || int(p.Method) >= len(in.methods) {
		return vmruntime.Scope{BCI: -1}
	}
	return vmruntime.Scope{Method: in.methods[p.Method], BCI: int(p.BCI)}
}

// symbol returns the method of a frame as in call graphs; a marker if it has no name.
func (in *input) symbol(f vmruntime.Frame, m estimate.MethodID) symbol.Symbol {
	if m == estimate.NoMethod {
		return guest.Marker("[VM]")
	}
	if f.Function == "" {
		return guest.Marker("[unknown]")
	}
	f.Line = 0
	return in.guest.MethodSymbols()(f)
}
