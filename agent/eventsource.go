package agent

import (
	"context"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/events"
	"github.com/vmprof-agent/vmprof-agent/agent/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/target"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// An eventSource is the source of events: of probes, of the kernel and of the CPU.
type eventSource struct {
	passive
	*events.Probes
	agent     *Agent
	faults    faultQueue
	shownCost time.Duration // the highest in Stats; guarded by agent.mu
}

// newEventSource attaches probes in that pool.
func newEventSource(a *Agent, opt events.Options, pool *proc.Pool) (*eventSource, error) {
	if opt.Budget == 0 {
		opt.Budget = DefaultBudget
	}
	probes, err := events.New(events.Config{
		Log: a.log, Resolver: a.resolver, Objects: a.objects, Attaching: pool, GuestTimes: a.guestTimes, Flush: a.flush, Refusal: explainLoad,
	}, opt)
	if err != nil {
		return nil, err
	}
	return &eventSource{Probes: probes, agent: a}, nil
}

func (e *eventSource) start(ctx context.Context) error { return e.Probes.Start(ctx) }

func (e *eventSource) stop() error {
	e.Probes.Stop()
	return nil
}

func (e *eventSource) refresh() error            { return e.Probes.Refresh() }
func (e *eventSource) close() error              { return e.Probes.Close() }
func (e *eventSource) finds(maps proc.Maps) bool { return e.Probes.Finds(maps) }

// expect has plans that are observed in slices of time observed in some of a short window.
func (e *eventSource) expect(length time.Duration) { e.Expect(monotonic(), length) }

// BeforeNames looks up the objects of page faults: first, as objects move.
func (e *eventSource) BeforeNames(p *target.Process) {
	if faults := e.faults.of(p); len(faults) > 0 {
		e.agent.resolver.Begin(target.StageObjects, p)
		e.lookUpFaults(p, faults)
	}
}

// LeftAlone folds page faults without their objects.
func (e *eventSource) LeftAlone(p *target.Process) { e.foldFaults(p, e.faults.of(p)) }

func (e *eventSource) count(s *snapshot) {
	if e.Options.ExactAllocations {
		var err error
		if s.allocated, err = e.classCounts(); err != nil {
			e.agent.log.Error("cannot read how many objects were allocated", "err", err)
		}
	}
	s.covered = e.Covers.Sums(monotonic())
}

func (e *eventSource) addStats(c *bpf.Counts, s *profile.Stats) {
	a := e.agent
	a.mu.Lock()
	defer a.mu.Unlock()
	now := snapshot{kernel: *c, observed: a.observed.clone()}
	s.Events = &profile.EventStats{EventCounts: now.eventsSince(snapshot{}, e.TrapTime())}
	s.Events.Wanted, s.Events.Observed = e.Covers.Times(monotonic())
	for kind, on := range e.Options.Kinds {
		if on {
			s.Events.Kinds = append(s.Events.Kinds, profile.EventKind(kind))
		}
	}
	// What a hit takes is measured when the first ones may have been counted, at a guess; a counter must not go back.
	e.shownCost = max(e.shownCost, s.Events.Cost)
	s.Events.Cost = e.shownCost
}

func (e *eventSource) kernelMaps() []any { return e.Maps() }

func (e *eventSource) fill(ctx context.Context, w *closedWindow, p *profile.Profile) (finish func()) {
	p.EventCounts = w.after.eventsSince(w.before, e.TrapTime())
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
