package usdt

import (
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/budget"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/probesite/hitcost"
)

const (
	// interruptions is what a process loses when a probe is attached and detached, in interrupts of
	// its CPU. Linux 6.18 sends three or four: the CPU flushes the page of code, twice, and reports
	// whether it runs BPF programs (RCU tasks trace). The process then faults the page in again,
	// twice. BenchmarkInterruption measures the total: 85 to 110 us if an interrupt takes 20 us.
	interruptions = 5
	// usualInterrupt is the assumed time of an interrupt until it is measured: as on a small
	// virtual machine.
	usualInterrupt = 20 * time.Microsecond
	// measurements is how often the measurement is tried. A busy machine may have no time for it.
	measurements = 3
)

// measure measures the time of an interrupt on this machine, if not known yet. It keeps two CPUs
// busy for 50 to 200 ms.
func (e *Engine) measure() {
	if e.measured >= measurements {
		return
	}
	e.measured++
	took, err := hitcost.Interrupt()
	if err != nil {
		e.log.Debug("what an interrupt takes is not measured", "err", err, "taken", usualInterrupt)
		return
	}
	e.log.Debug("what an interrupt takes was measured", "time", took)
	e.interrupt.Store(int64(took))
	e.measured = measurements
}

// interruption is the time that attaching and detaching a probe takes from a process.
func (e *Engine) interruption() time.Duration {
	return interruptions * time.Duration(e.interrupt.Load())
}

// totals are the kernel side's counters of guests: see struct usdt_guest.
type totals struct {
	hits, refused, mismatched, lost, sampled, bursts uint64
	hitTime, sampleTime, tickTime                    time.Duration
}

func (t *totals) add(o totals) {
	t.hits += o.hits
	t.refused += o.refused
	t.mismatched += o.mismatched
	t.lost += o.lost
	t.sampled += o.sampled
	t.bursts += o.bursts
	t.hitTime += o.hitTime
	t.sampleTime += o.sampleTime
	t.tickTime += o.tickTime
}

// counters reads the counters of one process; zero if the kernel side has forgotten it.
func (e *Engine) counters(g *guest) totals {
	k := g.kernel
	if err := e.usdt.UsdtGuests.Lookup(uint32(g.id.PID), &k); err != nil || k.StartTicks != g.kernel.StartTicks {
		return totals{}
	}
	return totals{
		hits: k.Hits, refused: k.Refused, mismatched: k.Mismatched, lost: k.Lost, sampled: k.Sampled, bursts: k.Bursts,
		hitTime: time.Duration(k.HitNs), sampleTime: time.Duration(k.SampleNs), tickTime: time.Duration(k.TickNs),
	}
}

// sum returns the totals of all present and past processes, and the number of their windows.
func (e *Engine) sum() (t totals, windows uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t = e.retired
	for _, g := range e.guests {
		t.add(e.counters(g))
	}
	return t, e.opened
}

// Cost implements calls.Engine. Attaching uses the agent's own time.
func (e *Engine) Cost() budget.Cost {
	t, windows := e.sum()
	return t.cost(windows, e.weigher.passing(), e.interruption())
}

// cost is what processes paid, if each pass of the probe and each window takes that long. The time
// of the BPF program, measured at every hit, is added: sampled calls take longer than others. Calls
// made while the probe is being detached are not part of the burst; they are part of a window's
// cost, whatever its burst is.
func (t totals) cost(windows uint64, passing, interruption time.Duration) budget.Cost {
	c := budget.Cost{Hits: t.sampled}
	if t.sampled > 0 {
		c.HitTime = passing + t.sampleTime/time.Duration(t.sampled)
		c.SkipTime = c.HitTime
	}
	over := t.hits - min(t.sampled, t.hits)
	if over > 0 {
		c.SkipTime = passing + (t.hitTime-t.sampleTime)/time.Duration(over)
	}
	c.Arming = t.tickTime + time.Duration(windows)*interruption + time.Duration(over)*c.SkipTime
	if windows > 0 {
		c.TickTime = interruption + (t.tickTime+time.Duration(t.refused)*c.SkipTime)/time.Duration(windows)
	}
	return c
}
