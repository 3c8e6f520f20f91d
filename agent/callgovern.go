package agent

import (
	"maps"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/budget"
	"github.com/vmprof-agent/vmprof-agent/agent/calls"
	"github.com/vmprof-agent/vmprof-agent/agent/calls/listener"
	"github.com/vmprof-agent/vmprof-agent/agent/calls/usdt"
	"github.com/vmprof-agent/vmprof-agent/agent/target"
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
	calls.Engine
	controller *budget.Controller  // nil if the engine keeps to the budget by itself
	guests     func(*process) bool // whose time the budget is a share of; agent.mu is held
	time       time.Duration       // CPU time of those so far
	seen       map[*process]uint64 // their samples that are in time

	// Guarded by agent.mu.
	exceeds      bool // the budget has no room for what is fixed, or for anything
	sampled, all int  // rates that were not a pause, all; there is one every governInterval
}

// govern keeps the engines within the budget until the function that it returns is called.
func (e *callEngines) govern() (stop func()) {
	var governs []*governed
	for _, engine := range e.running {
		g := &governed{Engine: engine, guests: e.guestsOf(engine.Name()), seen: map[*process]uint64{}}
		if engine != calls.Engine(e.estimator) {
			limits := budget.Limits{Share: e.opt.Budget, Fixed: e.opt.fixed(engine.Name())}
			if engine.Name() == usdt.Name {
				limits.MaxHz = usdt.MaxHz
			}
			g.controller = budget.New(limits)
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
			if engine, ok := g.Engine.(*listener.Engine); ok {
				engine.Wait() // its window may still hear calls
			}
		}
	}
}

// guestsOf tells which processes are guests of an engine.
func (e *callEngines) guestsOf(engine string) func(*process) bool {
	switch engine {
	case "page":
		return func(p *process) bool { return e.pages[p.PID] }
	case usdt.Name:
		return func(p *process) bool { return e.probed[p.Process] }
	case "branch":
		return func(*process) bool { return true }
	case "listener":
		return e.listensTo
	}
	return func(p *process) bool { return p.Attachment.Load() != 0 }
}

// listensTo tells whether a process is a guest of the engine listener, if that runs; agent.mu is held.
func (e *callEngines) listensTo(p *process) bool {
	if p.Attachment.Load() != 0 {
		return e.estimator == nil
	}
	return p.Code.Load() != nil && !e.pages[p.PID]
}

// tune sets all rates anew.
func (e *callEngines) tune() {
	a := e.agent
	runtimes := e.runtimes()
	pages := map[int]bool{}
	for pid := range runtimes {
		pages[pid] = true
	}
	a.mu.Lock()
	e.pages = pages
	for pid := range pages {
		if p := a.table[pid]; p != nil {
			p.SetRuntime(runtimes[pid])
		}
	}
	maps.DeleteFunc(e.probed, func(p *target.Process, _ bool) bool { return p.Exited.Load() })
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
			e.rates[g.Name()] = labelled(g.Name(), rate)
		}
		a.mu.Unlock()
	}
}

// cost is what the engine took of its guests. The ticks that an estimate is made of are part of it: there are more of them
// than of a time profile alone.
func (g *governed) cost(a *Agent) calls.Cost {
	c := g.Engine.Cost()
	if g.Name() == "hotspot" {
		ticks := g.time / a.period()
		c.Arming += ticks * a.tickTime()
	}
	return c
}

// labelled is a rate as profiles have it: where every call of a burst traps, or the CPU records calls in a row, there is
// no stride.
func labelled(engine string, r profile.Rate) profile.Rate {
	if engine == "listener" || engine == "branch" {
		r.Stride = 0
	}
	return r
}

// count adds what the engine's guests used since the last time, by their samples; agent.mu is held.
func (g *governed) count(a *Agent) {
	for _, p := range a.table {
		if !g.guests(p) {
			continue
		}
		g.time += time.Duration(p.samples-g.seen[p]) * a.period()
		g.seen[p] = p.samples
	}
	for p, before := range g.seen {
		if a.table[p.PID] != p {
			g.time += time.Duration(p.samples-before) * a.period()
			delete(g.seen, p)
		}
	}
}
