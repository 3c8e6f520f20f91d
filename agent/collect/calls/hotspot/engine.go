// Package hotspot is the call engine for stock JVMs. It has no records of calls: it estimates them
// (package estimate) from the stacks of the time profile, from the counters that the VM keeps, and
// from windows of breakpoints on the entries of hot code.
package hotspot

import (
	"context"
	"sync"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/budget"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls/listener"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/source"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/host/retry"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// Bounds of an Engine.
const (
	maxGuests     = 4                     // JVMs with breakpoint windows, the busiest; others are estimated without
	planInterval  = time.Second           // time between plans of what to listen to
	planAhead     = 3 * time.Second       // the time that a plan is made for
	listenLongest = 20 * time.Millisecond // longest time of one window
	listenHits    = 64                    // most hits of one window
	listenWindows = 40                    // a second and process, at most
	keptWindows   = 2048                  // windows kept for a process, each some kB
	recentWindows = time.Minute           // the observations that plans use: processes change
	meetInterval  = planInterval / 10     // time between checks for JVMs that have just started
	fade          = 0.2                   // part of past samples that is forgotten every planInterval
)

// Runtime is the name of the runtime whose VMs the engine estimates calls for, as in the table of
// runtimes.
const Runtime = "hotspot"

// An Engine estimates call rates of stock JVMs: see package estimate. It opens breakpoint windows
// on some methods of the busiest ones, as far as the budget allows, to check and to anchor its
// estimates.
type Engine struct {
	*source.Services
	listener  *listener.Listener // nil: no breakpoint is set
	budget    float64            // share of the processes' CPU time that windows and ticks may take
	logical   bool               // also inlined calls
	cancel    context.CancelFunc
	done      chan struct{}
	watches   listener.Tally
	baselined map[*fold.Process]struct{} // belongs to the goroutine that plans

	mu      sync.Mutex
	guests  map[*fold.Process]*jvm
	bucket  budget.Bucket // CPU time of processes that windows may take now
	planned time.Duration // when it was filled last, CLOCK_MONOTONIC
}

// A jvm is the engine's state for a process.
type jvm struct {
	windows     []observedWindow      // oldest first
	last        reading               // the last one; belongs to the worker that handles the process
	limits      *profile.InlineLimits // limits of the VM's inliner, nil until they are read; belongs to the same worker
	credibility profile.Credibility   // from the last plan

	// The goroutine that plans and opens windows owns these.
	plan       plan          // the last one
	since      time.Duration // CLOCK_MONOTONIC: when it was first met
	planAgain  time.Duration // CLOCK_MONOTONIC: when to plan again
	income     float64       // the share of the process's CPU time that windows may take, seconds a second
	windowCost time.Duration // average cost of recent windows
	due        time.Duration // CLOCK_MONOTONIC: of the next window
	failed     bool          // the agent panicked over it: it is estimated without windows

	// The last estimate while the process lived: for windows that close after its end, or whose
	// estimate comes too late.
	kept              calls.Estimated
	keptAt, keptSince time.Duration // CLOCK_MONOTONIC: when it was made, and the beginning of its window
	keep              retry.Backoff // back-off of making the next one
}

// Open starts an engine, which owns the listener from now on; without a listener, estimates are not
// checked. share is the part of the processes' CPU time that windows and ticks may take. logical
// adds the calls that the VM inlined.
func Open(services *source.Services, l *listener.Listener, share float64, logical bool) *Engine {
	ctx, cancel := context.WithCancel(context.Background())
	e := &Engine{
		Services: services, listener: l, budget: share, logical: logical, cancel: cancel, done: make(chan struct{}),
		guests: map[*fold.Process]*jvm{}, baselined: map[*fold.Process]struct{}{},
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

// Notes implements calls.Engine. There are none: notes on estimates are in the profiles' own
// comments.
func (e *Engine) Notes() []string { return nil }

// Tune does nothing: the budget decides about windows, and without ticks there is nothing to
// estimate.
func (e *Engine) Tune(profile.Rate) error { return nil }

// leastShare is the part of the budget that windows may take, however expensive ticks are.
const leastShare = 0.5

// share is the part of the processes' CPU time that windows may take: what ticks leave of the
// budget.
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

// Cost implements calls.Engine, for windows only. The cost of ticks is added where their number is
// known.
func (e *Engine) Cost() budget.Cost {
	if e.listener == nil {
		return budget.Cost{}
	}
	return e.listener.Cost()
}

// Watches implements calls.Watching.
func (e *Engine) Watches() calls.Watches { return e.watches.Watches() }

// hitTime is the CPU time of the process that a breakpoint hit takes.
func (e *Engine) hitTime() time.Duration {
	if e.listener == nil {
		return 0
	}
	return e.listener.HitTime()
}

// Close ends all windows.
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
			e.Resolver.Keep(guest.StageUpkeep, func() { e.readBaselines(ctx) })
			continue
		case <-tick.C:
		}
		busy := e.Busiest(maxGuests, fade, planInterval)
		e.forget()
		e.fillBucket(busy)
		// One plan at a time: a worker that plans does not name methods meanwhile.
		var guests []*jvm
		for _, b := range busy {
			e.mu.Lock()
			own := e.guestOf(b.Process)
			e.mu.Unlock()
			if own.failed {
				continue
			}
			if e.Resolver.Attempt(guest.StageListen, b.Process.Process, func() { e.replan(ctx, b, own) }) == nil {
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
				if e.Resolver.Attempt(guest.StageListen, own.plan.process.Process,
					func() { e.listen(round, own) }) != nil {
					own.failed = true
				}
			})
		}
		wg.Wait()
		stop()
	}
}

// forget drops the state of processes that have ended, once no window needs it.
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
