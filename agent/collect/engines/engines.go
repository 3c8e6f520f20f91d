// Package engines samples calls with all call engines that work on this machine. It has a table of
// engines, which it tries, and a source that folds their samples, keeps them within a budget, and
// adds notes on them to profiles.
//
//	e, err := engines.Open(services, engines.Options{}.WithDefaults())
//
// To add an engine, write its package below agent/collect/calls and a row of the table.
package engines

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/source"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// Engines sample calls for an agent, with all engines that work on this machine.
type Engines struct {
	source.Passive
	*source.Services
	opt       Options
	choices   []profile.Choice
	running   []*engine
	estimator estimator // one of the running engines; nil if none estimates
	hot       bool      // one of them has needsHot

	governed  []*governed
	endGovern func() // nil if they did not start

	// Only functions that have the State use these.
	rates  map[string]profile.Rate // the last one with ticks, as profiles are labelled
	counts counts
}

// An engine is a running call engine, with its row of the table.
type engine struct {
	calls.Engine
	engineSpec
	engines *Engines
	beneath io.Closer // nil for nothing
	shown   guest.PerProcess[showing]

	// Only functions that have the State use these.
	// processes connected to a calls.Connector when rates were last set: their runtimes, by pid
	connected map[int]string
	found     map[*guest.Process]bool // processes that a calls.GuestFinder samples
}

// Open starts the requested engines that work here. It fails if none does.
func Open(services *source.Services, opt Options) (*Engines, error) {
	e := &Engines{Services: services, opt: opt, rates: map[string]profile.Rate{},
		counts: counts{discarded: noCallDiscards()}}
	for _, spec := range engineTable(opt) {
		choice := profile.Choice{Engine: spec.name, Reason: spec.declined(opt), Socket: spec.socket}
		if choice.Reason != "" {
			e.choices = append(e.choices, choice)
			continue
		}
		started, err := spec.try(e)
		if err == nil {
			choice.Chosen, choice.Reason = true, spec.purpose
			if started.limit != "" {
				choice.Reason += "; " + started.limit
			}
			e.run(spec, started)
		} else {
			choice.Reason = err.Error()
		}
		e.choices = append(e.choices, choice)
	}
	if len(e.running) > 0 {
		return e, nil
	}
	err := errors.New("no call engine works here")
	for _, c := range e.choices {
		if opt.Engine == "" || opt.Engine == calls.Auto || opt.Engine == c.Engine {
			err = fmt.Errorf("%w; %v", err, c)
		}
	}
	return nil, err
}

// run adds a started engine.
func (e *Engines) run(spec engineSpec, s started) *engine {
	own := &engine{
		Engine: s.engine, engineSpec: spec, engines: e, beneath: s.beneath, found: map[*guest.Process]bool{},
	}
	e.running = append(e.running, own)
	if estimator, ok := s.engine.(estimator); ok {
		e.estimator = estimator
	}
	e.hot = e.hot || spec.needsHot
	return own
}

// engine returns the engine with a name; nil if it does not run.
func (e *Engines) engine(name string) *engine {
	if i := slices.IndexFunc(e.running, func(own *engine) bool { return own.Name() == name }); i >= 0 {
		return e.running[i]
	}
	return nil
}

// Choices returns which engines sample calls, and why or why not.
func (e *Engines) Choices() []profile.Choice { return slices.Clone(e.choices) }

// NeedsHot implements source.HotUser.
func (e *Engines) NeedsHot() bool { return e.hot }

// Start implements source.Source.
func (e *Engines) Start(context.Context) error {
	e.endGovern = e.govern()
	return nil
}

func (e *Engines) Stop() error {
	if e.endGovern != nil {
		e.endGovern()
	}
	return nil
}

// EndRequests ends the engines: they wait for readings by workers.
func (e *Engines) EndRequests() error { return e.end() }

// Report implements source.Reporter.
func (e *Engines) Report(c *bpf.Counts, s *profile.Stats) { s.Calls = e.stats(c) }

// stats returns the statistics of the engines since they were made.
func (e *Engines) stats(c *bpf.Counts) *profile.CallStats {
	s := &profile.CallStats{
		Budget: e.opt.Budget, Costs: map[string]time.Duration{},
		Dropped: map[string]uint64{"ring_full": c[bpf.CallsDroppedRingFull], "no_memory": c[bpf.CallsDroppedNoDraft]},
		Hits:    c[bpf.CallHits], Refused: c[bpf.CallHitsRefused], Bursts: c[bpf.BurstsArmed],
		Skipped: c[bpf.BurstsSkipped],
	}
	if e.estimator != nil {
		s.Credibility = e.estimator.Credibility()
	}
	times := e.guestTimes()
	for _, used := range times {
		s.GuestTime += used
	}
	e.Owner.Do(func(*fold.State) {
		s.Attempted = c[bpf.CallsAttempted] + e.counts.taken
		s.Delivered, s.Folded, s.Discarded, s.Rates = e.counts.received, e.counts.folded,
			maps.Clone(e.counts.discarded), maps.Clone(e.rates)
	})
	// This does not hold the State: an engine's lock may be held while it attaches to processes.
	for g, guests := range times {
		s.Costs[g.Name()] = g.cost(guests).Time()
	}
	if s.Discarded == nil { // this request failed
		s.Discarded = map[string]uint64{}
	}
	for _, own := range e.running {
		if watching, ok := own.Engine.(calls.Watching); ok {
			watches := watching.Watches()
			if s.Watches == nil {
				s.Watches = map[string]uint64{}
			}
			for outcome, n := range watches.ByOutcome() {
				s.Watches[outcome] += n
			}
			s.BusyThreads += watches.BusyThreads
		}
		if unweigher, ok := own.Engine.(calls.Unweigher); ok {
			for cause, n := range unweigher.Unweighed() {
				s.Discarded[cause] += n
			}
		}
	}
	return s
}

// end removes all engines from the kernel and from processes.
func (e *Engines) end() error {
	var errs []error
	for _, own := range e.running {
		if err := own.Close(); err != nil {
			errs = append(errs, fmt.Errorf("end engine %s: %w", own.Name(), err))
		}
	}
	for _, own := range e.running {
		if own.beneath != nil {
			errs = append(errs, own.beneath.Close())
		}
	}
	return errors.Join(errs...)
}
