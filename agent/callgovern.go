package agent

import (
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/budget"
	"github.com/vmprof-agent/vmprof-agent/agent/calls"
	"github.com/vmprof-agent/vmprof-agent/agent/fold"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// interruption is what a tick takes of a guest beside the program that it runs. On bare metal it is less; on a small
// virtual machine, 999 ticks a second take 1.5% of a CPU (make bench).
const interruption = 12 * time.Microsecond

// tickTime is what a tick takes of a guest.
func (a *Agent) tickTime() time.Duration {
	c, err := a.objects.ReadCounts()
	if runs := c[bpf.SamplesAttempted]; err == nil && runs > 0 {
		return interruption + time.Duration(c[bpf.NsTotal]/runs)
	}
	return interruption
}

// governInterval is how often rates are set anew.
const governInterval = time.Second

// A governed is an engine whose rate follows from the budget.
type governed struct {
	*callEngine
	controller *budget.Controller       // nil if the engine keeps to the budget by itself
	time       time.Duration            // CPU time of its guests so far
	seen       map[*fold.Process]uint64 // their samples that are in time

	// Guarded by agent.mu.
	exceeds      bool // the budget has no room for what is fixed, or for anything
	sampled, all int  // rates that were not a pause, all; there is one every governInterval
}

// govern keeps the engines within the budget until the function that it returns is called.
func (e *callEngines) govern() (stop func()) {
	var governs []*governed
	for _, own := range e.running {
		g := &governed{callEngine: own, seen: map[*fold.Process]uint64{}}
		if !own.SelfGoverned {
			g.controller = budget.New(budget.Limits{Share: e.opt.Budget, Fixed: own.Fixed(e.opt.Rate), MaxHz: own.maxHz})
		}
		governs = append(governs, g)
	}
	e.agent.mu.Lock()
	e.governed = governs
	e.agent.mu.Unlock()
	e.tune()
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(governInterval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				e.tune()
			case <-done:
				return
			}
		}
	}()
	return func() {
		close(done)
		<-ended
		for _, g := range e.governed {
			if err := g.Tune(profile.Rate{Burst: profile.Burst{Stride: 1}}); err != nil {
				e.agent.log.Error("cannot end sampling of calls", "engine", g.Name(), "err", err)
			}
			if waiter, ok := g.Engine.(calls.Waiter); ok {
				waiter.Wait()
			}
		}
	}
}

// tune sets all rates anew.
func (e *callEngines) tune() {
	a := e.agent
	e.meet()
	a.mu.Lock()
	for _, g := range e.governed {
		g.count(a)
	}
	a.mu.Unlock()
	for _, g := range e.governed {
		if g.controller == nil {
			continue
		}
		rate := g.controller.Next(budget.Usage{Guests: g.time, Cost: g.cost(a)})
		if err := g.Tune(rate); err != nil {
			a.log.Warn("cannot change how many calls are sampled", "engine", g.Name(), "rate", rate, "err", err)
			continue
		}
		a.mu.Lock()
		g.exceeds = g.controller.Exceeds()
		g.all++
		if rate.Hz > 0 {
			g.sampled++
			e.rates[g.Name()] = g.Label(rate)
		}
		a.mu.Unlock()
	}
}

// cost is what the engine took of its guests. The ticks that an estimate is made of are part of it: there are more of them
// than of a time profile alone.
func (g *governed) cost(a *Agent) calls.Cost {
	c := g.Engine.Cost()
	if g.SelfGoverned {
		ticks := g.time / a.period()
		c.Arming += ticks * a.tickTime()
	}
	return c
}

// count adds what the engine's guests used since the last time, by their samples; agent.mu is held.
func (g *governed) count(a *Agent) {
	for _, p := range a.table {
		if !g.guests(g.callEngine, p) {
			continue
		}
		g.time += time.Duration(p.Samples-g.seen[p]) * a.period()
		g.seen[p] = p.Samples
	}
	for p, before := range g.seen {
		if a.table[p.PID] != p {
			g.time += time.Duration(p.Samples-before) * a.period()
			delete(g.seen, p)
		}
	}
}
