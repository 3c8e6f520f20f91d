package agent

import (
	"context"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/fold"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// start implements source: it records hits, and governs how many.
func (e *eventProbes) start(ctx context.Context) error {
	if err := e.setRecording(true); err != nil {
		return err
	}
	ctx, e.endGovern = context.WithCancel(ctx)
	e.governing.Go(func() { e.govern(ctx) })
	return nil
}

func (e *eventProbes) stop() error {
	if e.endGovern != nil {
		e.endGovern()
		e.governing.Wait()
	}
	if err := e.setRecording(false); err != nil {
		e.agent.log.Error("cannot stop recording events", "err", err)
	}
	return nil
}

func (e *eventProbes) refresh() error { return e.perf.refresh() }

// expect has plans that are observed in slices of time observed in some of a short window.
func (e *eventProbes) expect(length time.Duration) { e.hurry(monotonic(), length) }

func (e *eventProbes) count(s *snapshot) {
	if e.opt.ExactAllocations {
		var err error
		if s.allocated, err = e.classCounts(); err != nil {
			e.agent.log.Error("cannot read how many objects were allocated", "err", err)
		}
	}
	s.covered = e.covers.sums(monotonic())
}

func (e *eventProbes) addStats(c *bpf.Counts, s *profile.Stats) {
	a := e.agent
	a.mu.Lock()
	defer a.mu.Unlock()
	now := snapshot{kernel: *c, observed: a.observed.clone()}
	s.Events = &profile.EventStats{EventCounts: now.eventsSince(snapshot{}, e.trapTime())}
	s.Events.Wanted, s.Events.Observed = e.covers.times(monotonic())
	for kind, on := range e.opt.Kinds {
		if on {
			s.Events.Kinds = append(s.Events.Kinds, profile.EventKind(kind))
		}
	}
	// What a hit takes is measured when the first ones may have been counted, at a guess; a counter must not go back.
	e.shownCost = max(e.shownCost, s.Events.Cost)
	s.Events.Cost = e.shownCost
}

func (e *eventProbes) kernelMaps() []any {
	maps := []any{e.objects.ProbeMaps}
	if e.perf != nil {
		maps = append(maps, e.perf.objects.FaultMaps)
	}
	return maps
}

func (e *eventProbes) fill(ctx context.Context, w *closedWindow, p *profile.Profile) (finish func()) {
	p.EventCounts = w.after.eventsSince(w.before, e.trapTime())
	e.agent.countObjects(ctx, w.Window, w.processes, w.after, p)
	w.covered = fold.Covered(w.before.covered, w.after.covered, w.began, &p.EventCounts)
	p.Comments = append(p.Comments, w.covered.Notes()...)
	return nil
}

// namedEvents are the events of p in a window that was closed, with what was heard of monitor enters.
func (w *Window) namedEvents(p *fold.Process) []*profile.Events {
	s := w.events[p]
	if s == nil {
		return nil
	}
	var notes []string
	for source := range w.agent.sources.all() {
		if note := source.completeEvents(w, p); note != "" {
			notes = append(notes, note)
		}
	}
	names := p.Names()
	defer names.Close()
	all := s.Profile(names, p.Noticed, &w.covered)
	for _, e := range all {
		if e.Kind == profile.Locks { // the only kind of which some values are known late
			e.Basis = append(e.Basis, notes...)
		}
	}
	return all
}
