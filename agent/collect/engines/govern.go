package engines

import (
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/budget"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// governInterval is the interval at which rates are set.
const governInterval = time.Second

// A governed is an engine whose rate follows from the budget.
type governed struct {
	*engine
	controller *budget.Controller       // nil if the engine keeps to the budget by itself
	time       time.Duration            // CPU time of its processes so far
	seen       map[*fold.Process]uint64 // their samples that are included in time

	// Only functions that have the State use these.
	exceeds      bool // the budget has no room for the fixed fields, or for any sampling
	sampled, all int  // rates that were not a pause, all; there is one every governInterval
}

// govern keeps the engines within the budget until the returned function is called.
func (e *Engines) govern() (stop func()) {
	var governs []*governed
	for _, own := range e.running {
		g := &governed{engine: own, seen: map[*fold.Process]uint64{}}
		if !own.SelfGoverned {
			g.controller = budget.New(budget.Limits{Share: e.opt.Budget, Fixed: own.Fixed(e.opt.Rate),
				MaxHz: own.maxHz})
		}
		governs = append(governs, g)
	}
	e.Owner.Do(func(*fold.State) { e.governed = governs })
	e.tune()
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(governInterval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				e.Resolver.Keep(guest.StageUpkeep, e.tune)
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
				e.Log.Error("cannot end sampling of calls", "engine", g.Name(), "err", err)
			}
			if waiter, ok := g.Engine.(calls.Waiter); ok {
				waiter.Wait()
			}
		}
	}
}

// tune sets all rates.
func (e *Engines) tune() {
	e.recordConnected()
	times := e.guestTimes()
	for _, g := range e.governed {
		if g.controller == nil {
			continue
		}
		rate := g.controller.Next(budget.Usage{Guests: times[g], Cost: g.cost(times[g])})
		if err := g.Tune(rate); err != nil {
			e.Log.Warn("cannot change how many calls are sampled", "engine", g.Name(), "rate", rate, "err", err)
			continue
		}
		e.Owner.Do(func(*fold.State) {
			g.exceeds = g.controller.Exceeds()
			g.all++
			if rate.Hz > 0 {
				g.sampled++
				e.rates[g.Name()] = g.Label(rate)
			}
		})
	}
}

// guestTimes returns the CPU time of each engine's processes so far, by their samples.
func (e *Engines) guestTimes() map[*governed]time.Duration {
	times := map[*governed]time.Duration{}
	e.Owner.Do(func(s *fold.State) {
		for _, g := range e.governed {
			g.count(s)
			times[g] = g.time
		}
	})
	return times
}

// cost is what the engine took from its processes, which have used that much CPU time. It includes
// the ticks for estimates, which are more frequent than those for a time profile alone.
func (g *governed) cost(guests time.Duration) budget.Cost {
	c := g.Engine.Cost()
	if g.SelfGoverned {
		ticks := guests / g.engines.Period
		c.Arming += ticks * g.engines.TickTime()
	}
	return c
}

// count adds the CPU time of the engine's processes since the last call, by their samples.
func (g *governed) count(s *fold.State) {
	for _, p := range s.Table {
		if !g.guests(g.engine, s, p) {
			continue
		}
		g.time += time.Duration(p.Samples-g.seen[p]) * g.engines.Period
		g.seen[p] = p.Samples
	}
	for p, before := range g.seen {
		if s.Table[p.PID] != p {
			g.time += time.Duration(p.Samples-before) * g.engines.Period
			delete(g.seen, p)
		}
	}
}
