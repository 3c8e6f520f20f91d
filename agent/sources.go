package agent

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/source"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
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
