package semaphore

import (
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/calls"
)

// totals are the kernel side's counters of guests: see struct php_guest.
type totals struct {
	hits, refused, mismatched, lost, bursts uint64
	hitTime, tickTime                       time.Duration
}

func (t *totals) add(o totals) {
	t.hits += o.hits
	t.refused += o.refused
	t.mismatched += o.mismatched
	t.lost += o.lost
	t.bursts += o.bursts
	t.hitTime += o.hitTime
	t.tickTime += o.tickTime
}

// counters reads those of one guest; zero if the kernel side has forgotten it.
func (e *Engine) counters(g *guest) totals {
	k := g.kernel
	if err := e.php.PhpGuests.Lookup(uint32(g.id.PID), &k); err != nil || k.StartTicks != g.kernel.StartTicks {
		return totals{}
	}
	return totals{
		hits: k.Hits, refused: k.Refused, mismatched: k.Mismatched, lost: k.Lost, bursts: k.Bursts,
		hitTime: time.Duration(k.HitNs), tickTime: time.Duration(k.TickNs),
	}
}

// sum is over all guests that there are and were.
func (e *Engine) sum() totals {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.retired
	for _, g := range e.guests {
		t.add(e.counters(g))
	}
	return t
}

// Cost implements calls.Engine. The writes are made by another process on its own time.
func (e *Engine) Cost() calls.Cost { return e.sum().cost(e.weigher.passing()) }

// cost is what that took guests, if they pass the probe in so long. The time of a hit is that, as their bursts show it,
// and that of the program, as it is measured at every hit. Every call of a burst is a hit, also those passed over.
func (t totals) cost(passing time.Duration) calls.Cost {
	c := calls.Cost{Hits: t.hits, Arming: t.tickTime}
	if t.hits > 0 {
		c.HitTime = passing + t.hitTime/time.Duration(t.hits)
		c.SkipTime = c.HitTime
	}
	if t.bursts > 0 {
		c.TickTime = t.tickTime / time.Duration(t.bursts)
	}
	return c
}
