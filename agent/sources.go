package agent

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls/counters"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls/exact"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/cputime"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/engines"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/events"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/monitors"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/slow"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/source"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// sources are what an agent records, in the order in which it starts: first what the others depend
// on, as samples show which code is busy, then those that work on what was found. The latter stop
// first. Within each of the two lists sources start, stop and close in the same order.
type sources struct {
	first []source.Source // events, ticks
	then  []source.Source // lock acquisitions, calls
}

// all are all sources in the order in which they start.
func (s *sources) all() iter.Seq[source.Source] {
	return func(yield func(source.Source) bool) {
		for _, list := range [...][]source.Source{s.first, s.then} {
			for _, one := range list {
				if !yield(one) {
					return
				}
			}
		}
	}
}

// ending are all sources in the order in which they stop and close. Workers call them in that
// order, too: call engines come before events, which set a stage of their own.
func (s *sources) ending() []source.Source { return slices.Concat(s.then, s.first) }

// start starts one of the lists.
func start(ctx context.Context, list []source.Source) error {
	for _, one := range list {
		if err := one.Start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// stop stops all sources, also those that did not start.
func (s *sources) stop() error { return s.each(source.Source.Stop) }

// each calls do for all sources in the order in which they stop.
func (s *sources) each(do func(source.Source) error) error {
	var errs []error
	for _, one := range s.ending() {
		errs = append(errs, do(one))
	}
	return errors.Join(errs...)
}

// close closes all sources.
func (s *sources) close() error { return s.each(source.Source.Close) }

// implementing are the sources that implement T, in the order in which they start.
func implementing[T any](s *sources) iter.Seq[T] {
	return func(yield func(T) bool) {
		for one := range s.all() {
			if t, ok := one.(T); ok && !yield(t) {
				return
			}
		}
	}
}

// refresh has all sources follow CPUs that came online or went.
func (s *sources) refresh() (err error) {
	for one := range implementing[source.Refresher](s) {
		err = errors.Join(err, one.Refresh())
	}
	return err
}

// endRequests ends what waits for workers, in the order in which sources stop.
func (s *sources) endRequests() error {
	return s.each(func(one source.Source) error {
		if r, ok := one.(source.Requester); ok {
			return r.EndRequests()
		}
		return nil
	})
}

// failed is the channel of the one source that may end Run; nil if there is none.
func (s *sources) failed() <-chan error {
	for one := range implementing[source.Failer](s) {
		return one.Failed()
	}
	return nil
}

// expect prepares for a window of that length that opens now.
func (s *sources) expect(length time.Duration) {
	for one := range implementing[source.Expecter](s) {
		one.Expect(length)
	}
}

// finds reports whether a source finds something in a process that maps these files.
func (s *sources) finds(maps proc.Maps) bool {
	for one := range implementing[source.Finder](s) {
		if one.Finds(maps) {
			return true
		}
	}
	return false
}

// needHot reports whether a source wants to know which code is busy.
func (s *sources) needHot() bool {
	for one := range implementing[source.HotUser](s) {
		if one.NeedsHot() {
			return true
		}
	}
	return false
}

// flush has all sources fold what waits for more records.
func (s *sources) flush(state *fold.State) {
	for one := range implementing[source.Holder](s) {
		one.Flush(state)
	}
}

// needNames calls of.Need for the frames whose names sources need.
func (s *sources) needNames(state *fold.State, of fold.NamesOf) {
	for one := range implementing[source.Namer](s) {
		one.NeedNames(state, of)
	}
}

// ender is the source that makes profiles instead of the agent; nil if there is none.
func (s *sources) ender() source.Ender {
	for one := range implementing[source.Ender](s) {
		return one
	}
	return nil
}

// openSources opens what the options ask for, given how functions of the kernel are found, and has
// records handled by what they are of.
func (a *Agent) openSources(ctx context.Context, find attach.Functions) error {
	a.handlers = a.ownHandlers()
	ticks, err := newTicks(a, find)
	if err != nil {
		return err
	}
	a.sources.first = []source.Source{ticks}
	var waits *bpf.OffCPU
	if opt := a.opt.Events; opt != nil {
		of := *opt
		of.Slow = a.opt.Slow != nil
		events, err := events.Open(a.services, of)
		if err != nil {
			return err
		}
		waits = events.OffCPU()
		a.handlers[bpf.EventObserved] = handler{events.Handle, events.Fail}
		a.handlers[bpf.EventVMThreadEnd] = handler{events.HandleThreadEnd, nil}
		a.sources.first = []source.Source{events, ticks}
		if opt.MonitorEnters {
			if !opt.Kinds[profile.Locks] {
				return errors.New("monitor enters need lock recording (-e lock)")
			}
			enters, err := monitors.OpenEnters(a.services, monitors.EntersOptions{
				Heaps: events.Programs.Heaps, Share: events.FairShare(), Fades: a.hotFades,
			})
			if err != nil {
				return err
			}
			events.CompleteWith(enters.Complete)
			a.sources.then = append(a.sources.then, enters)
		}
	}
	switch opt := a.opt.Calls; {
	case opt == nil:
	case opt.Exact == engines.ExactCounters:
		a.sources.then = append(a.sources.then, counters.New(a.services))
	case opt.Exact != engines.NotExact:
		x := exact.New(a.services, opt.Exact == engines.ExactEdges, opt.ExactObjects)
		a.handlers[bpf.EventNewMethod] = handler{x.HandleNewMethod, nil}
		a.sources.then = append(a.sources.then, x)
	default:
		if a.engines, err = engines.Open(a.services, opt.WithDefaults()); err != nil {
			return err
		}
		a.handlers[bpf.EventCall] = handler{a.engines.HandleCall, a.engines.Fail}
		a.handlers[bpf.EventNamedCall] = handler{a.engines.HandleNamedCall, a.engines.Fail}
		a.sources.then = append(a.sources.then, a.engines)
	}
	if opt := a.opt.Slow; opt != nil {
		if a.slow, err = slow.Open(ctx, a.services, *opt, waits); err != nil {
			return err
		}
		a.handlers[bpf.EventInvocation] = handler{a.slow.Handle, nil}
		a.sources.then = append(a.sources.then, a.slow)
	}
	if a.opt.counted() {
		a.sources.first = append(a.sources.first, cputime.Open(a.services))
		a.handlers[bpf.EventThreadEnd] = handler{cputime.Handle, nil}
	}
	hot := a.sources.needHot()
	return a.owner.Do(func(s *fold.State) { s.Hot = hot })
}
