// Package hotspot is the call engine for stock JVMs. It has no records of calls: it estimates them (package estimate) from the stacks of the time
// profile, the counters that the VM keeps, and windows in which breakpoints stand on the entries of hot code.
package hotspot

import (
	"context"
	"sync"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/budget"
	"github.com/vmprof-agent/vmprof-agent/agent/calls"
	"github.com/vmprof-agent/vmprof-agent/agent/calls/listener"
	"github.com/vmprof-agent/vmprof-agent/agent/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/retry"
	"github.com/vmprof-agent/vmprof-agent/agent/source"
	"github.com/vmprof-agent/vmprof-agent/agent/target"
)

// Bounds of an Engine.
const (
	maxGuests     = 4                     // that are listened to, the busiest; others are estimated without
	planInterval  = time.Second           // between plans of what to listen to
	planAhead     = 3 * time.Second       // that a plan is made for
	listenLongest = 20 * time.Millisecond // of one window
	listenHits    = 64                    // of one window
	listenWindows = 40                    // a second and guest, at most
	keptWindows   = 2048                  // of a guest, each some kB
	heardLately   = time.Minute           // what plans are made with: guests change
	meetInterval  = planInterval / 10     // between looks for JVMs that have just started
	fade          = 0.2                   // of what was seen, every planInterval
)

// Runtime is the name of the runtime for whose VMs the engine estimates calls, as its row of the table of runtimes has it.
const Runtime = "hotspot"

// An Engine estimates call rates of stock JVMs: see package estimate. Now and then it listens to some methods of
// the busiest ones, as far as the budget allows, to check and to anchor what it estimates.
type Engine struct {
	*source.Services
	listener *listener.Listener // nil: no breakpoint is set
	budget   float64            // share of the guests' CPU time that windows and ticks may take
	logical  bool               // also calls that were compiled away
	cancel   context.CancelFunc
	done     chan struct{}
	watches  listener.Tally
	met      map[*fold.Process]struct{} // belongs to the goroutine that plans

	mu      sync.Mutex
	guests  map[*fold.Process]*guest
	bucket  budget.Bucket // of guests' CPU time that windows may take now
	planned time.Duration // when it was filled last, CLOCK_MONOTONIC
}

// A guest is what the engine remembers of a process.
type guest struct {
	heard       []observedWindow    // oldest first
	last        reading             // the last one; belongs to the worker that has the process
	credibility profile.Credibility // by the last plan

	// These belong to the goroutine that plans, or that listens meanwhile.
	plan       plan          // the last one
	since      time.Duration // CLOCK_MONOTONIC: when it was first met
	planAgain  time.Duration // CLOCK_MONOTONIC: when to plan again
	income     float64       // what windows may cost of the guest's CPU time, seconds a second
	windowCost time.Duration // of recent windows, on average
	due        time.Duration // CLOCK_MONOTONIC: of the next window
	failed     bool          // the agent panicked over it: it is estimated without windows

	// The last estimate while the process lived, for windows that are closed when it is gone, or of which there is none in time.
	kept              calls.Estimated
	keptAt, keptSince time.Duration // CLOCK_MONOTONIC: when it was made, and the begin of its window
	keep              retry.Backoff // when to make the next one
}

// Open starts an engine, which owns the listener from now on; without one, estimates are not checked. Share is the part of the guests' CPU time
// that windows and ticks may take. Logical calls are those that a VM inlined, too.
func Open(services *source.Services, l *listener.Listener, share float64, logical bool) *Engine {
	ctx, cancel := context.WithCancel(context.Background())
	e := &Engine{
		Services: services, listener: l, budget: share, logical: logical, cancel: cancel, done: make(chan struct{}),
		guests: map[*fold.Process]*guest{}, met: map[*fold.Process]struct{}{},
	}
	go e.run(ctx)
	return e
}

var _ interface {
	calls.Engine
	calls.Watching
} = (*Engine)(nil)

// Name implements calls.Engine.
func (e *Engine) Name() string { return calls.Hotspot }

// Notes implements calls.Engine. There are none: those of estimates are in the profiles' own comments.
func (e *Engine) Notes() []string { return nil }

// Tune does nothing: how much to listen follows from the budget, and without ticks there is nothing to listen to.
func (e *Engine) Tune(profile.Rate) error { return nil }

// leastShare is the part of the budget that windows may take, however dear ticks are.
const leastShare = 0.5

// share is the part of the guests' CPU time that windows may take: what ticks leave of the budget.
func (e *Engine) share() float64 {
	ticks := e.TickTime().Seconds() / e.Period.Seconds()
	return max(e.budget-ticks, leastShare*e.budget)
}

// Credibility returns the credibility of the VMs' call counters, by service.
func (e *Engine) Credibility() map[string]profile.Credibility {
	e.mu.Lock()
	defer e.mu.Unlock()
	worst := map[string]profile.Credibility{}
	for p, own := range e.guests {
		service := p.Service()
		if c, known := worst[service]; own.credibility.Comparisons > 0 && (!known || own.credibility.Error > c.Error) {
			worst[service] = own.credibility
		}
	}
	return worst
}

// Cost of listening. That of the ticks is added where it is known how many there were.
func (e *Engine) Cost() calls.Cost {
	if e.listener == nil {
		return calls.Cost{}
	}
	return e.listener.Cost()
}

// Watches implements calls.Watching.
func (e *Engine) Watches() calls.Watches { return e.watches.Watches() }

// hitTime is what a hit of a breakpoint takes of a guest's CPU time.
func (e *Engine) hitTime() time.Duration {
	if e.listener == nil {
		return 0
	}
	return e.listener.HitTime()
}

// Close ends listening.
func (e *Engine) Close() error {
	e.cancel()
	<-e.done
	if e.listener == nil {
		return nil
	}
	return e.listener.Close()
}

func (e *Engine) run(ctx context.Context) {
	defer close(e.done)
	tick := time.NewTicker(planInterval)
	defer tick.Stop()
	look := time.NewTicker(meetInterval)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
			e.meet(ctx)
			continue
		case <-tick.C:
		}
		busy := e.Busiest(maxGuests, fade, planInterval)
		e.forget()
		e.fillBucket(busy)
		// One plan at a time: a worker that plans names nothing meanwhile.
		var guests []*guest
		for _, b := range busy {
			e.mu.Lock()
			own := e.guestOf(b.Process)
			e.mu.Unlock()
			if own.failed {
				continue
			}
			if e.Resolver.Attempt(target.StageListen, b.Process.Process, func() { e.replan(ctx, b, own) }) == nil {
				guests = append(guests, own)
			} else {
				own.failed = true
			}
		}
		round, stop := context.WithTimeout(ctx, planInterval)
		var wg sync.WaitGroup
		for _, own := range guests {
			if own.plan.process == nil {
				continue
			}
			wg.Go(func() {
				if e.Resolver.Attempt(target.StageListen, own.plan.process.Process, func() { e.listen(round, own) }) != nil {
					own.failed = true
				}
			})
		}
		wg.Wait()
		stop()
	}
}

// forget drops what is known of processes that are gone, once no window asks for it.
func (e *Engine) forget() {
	e.Owner.Do(func(*fold.State) {
		e.mu.Lock()
		defer e.mu.Unlock()
		for p := range e.guests {
			if p.Exited.Load() && p.Holders == 0 {
				delete(e.guests, p)
			}
		}
	})
}
