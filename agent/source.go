package agent

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/target"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// A source is something that an agent records: CPU time, events, lock acquisitions, calls. It embeds passive, and
// implements what it takes part in. Records of it reach the agent through handlers.
type source interface {
	target.Follower

	// start begins to record. What it begins goes on until stop, or until ctx ends.
	start(ctx context.Context) error
	// stop ends what start began, also if start failed or was not called.
	stop() error
	// refresh follows CPUs that came online or went.
	refresh() error
	// failed receives the error for which Run ends; nil if there is none.
	failed() <-chan error
	// endRequests ends what waits for workers, while they still run.
	endRequests() error
	// close takes everything out of the kernel. No worker runs any more.
	close() error

	// expect prepares for a window of that length that opens now.
	expect(length time.Duration)
	// finds reports whether a process that maps these files is to be attached to, though it may have no VM.
	finds(maps proc.Maps) bool
	// needTop reports whether the source wants to know which code is busy; agent.mu is held.
	needTop() bool
	// flush folds what waits for more records, because a window or a process ends; agent.mu is held.
	flush()
	// needNames calls need for the frames of p whose names must be kept, besides those of windows; agent.mu is held.
	needNames(p *fold.Process, need func(target.RawFrame))

	// count adds what the source counts to a snapshot; agent.mu is held.
	count(s *snapshot)
	// addStats adds the source's part to Stats, given the kernel side's counters.
	addStats(c *bpf.Counts, s *profile.Stats)
	// kernelMaps are the BPF maps that the source has besides those of samples and code, for mapsIn.
	kernelMaps() []any
	// fill adds the source's part to the profile of a closed window, before the parts of its processes are made. The
	// function that it returns, if any, is called after that.
	fill(ctx context.Context, w *closedWindow, p *profile.Profile) (finish func())
	// completeEvents sets values of the events of p that are known only when a window closes. It returns a note for readers.
	completeEvents(w *Window, p *fold.Process) (note string)
}

// A closedWindow is a window of which the profile is made.
type closedWindow struct {
	*Window
	processes []*fold.Process // that have samples in it
	after     snapshot        // at its end
}

// passive is a source that takes part in nothing.
type passive struct{ target.Bystander }

func (passive) start(context.Context) error                                         { return nil }
func (passive) stop() error                                                         { return nil }
func (passive) refresh() error                                                      { return nil }
func (passive) failed() <-chan error                                                { return nil }
func (passive) endRequests() error                                                  { return nil }
func (passive) close() error                                                        { return nil }
func (passive) expect(time.Duration)                                                {}
func (passive) finds(proc.Maps) bool                                                { return false }
func (passive) needTop() bool                                                       { return false }
func (passive) flush()                                                              {}
func (passive) needNames(*fold.Process, func(target.RawFrame))                      {}
func (passive) count(*snapshot)                                                     {}
func (passive) addStats(*bpf.Counts, *profile.Stats)                                {}
func (passive) kernelMaps() []any                                                   { return nil }
func (passive) fill(context.Context, *closedWindow, *profile.Profile) (none func()) { return nil }
func (passive) completeEvents(*Window, *fold.Process) string                        { return "" }

// sources are what an agent records, in the order in which it starts: first what the others depend on, as samples show
// which code is busy, then those that work on what was found. The latter stop first. Within each of the two lists sources start,
// stop and close in the same order.
type sources struct {
	first []source // events, ticks
	then  []source // lock acquisitions, calls
}

// all are all sources in the order in which they start.
func (s *sources) all() iter.Seq[source] {
	return func(yield func(source) bool) {
		for _, list := range [...][]source{s.first, s.then} {
			for _, one := range list {
				if !yield(one) {
					return
				}
			}
		}
	}
}

// ending are all sources in the order in which they stop and close. Workers call them in that order, too: call engines come
// before events, which set a stage of their own.
func (s *sources) ending() []source { return slices.Concat(s.then, s.first) }

// start starts one of the lists.
func start(ctx context.Context, list []source) error {
	for _, one := range list {
		if err := one.start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// stop stops all sources, also those that did not start.
func (s *sources) stop() error { return s.each(source.stop) }

// each calls do for all sources in the order in which they stop.
func (s *sources) each(do func(source) error) error {
	var errs []error
	for _, one := range s.ending() {
		errs = append(errs, do(one))
	}
	return errors.Join(errs...)
}

// failed is the channel of the one source that may end Run; nil if there is none.
func (s *sources) failed() <-chan error {
	for one := range s.all() {
		if c := one.failed(); c != nil {
			return c
		}
	}
	return nil
}

// any reports whether is holds for a source.
func (s *sources) any(is func(source) bool) bool {
	for one := range s.all() {
		if is(one) {
			return true
		}
	}
	return false
}

// flush has all sources fold what waits; agent.mu is held.
func (s *sources) flush() {
	for one := range s.all() {
		one.flush()
	}
}
