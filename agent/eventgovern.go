package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/attach"
	"github.com/vmprof-agent/vmprof-agent/agent/probesite"
	"github.com/vmprof-agent/vmprof-agent/agent/probesite/hitcost"
	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// A plan that costs too much even if nothing is told of it is taken away, for a rest that is longer every time.
const (
	firstRest   = 5 * time.Second
	longestRest = 5 * time.Minute
	// steady is by how much a rate must be wrong to be changed: weights of a window should not vary for nothing.
	steady = 1.5
	// faultLookups is how many page faults a second are told, about: to look one up takes the agent some 50 us.
	faultLookups = 200
)

// govern keeps the probes within the budget until ctx ends.
func (e *eventProbes) govern(ctx context.Context) {
	e.measureTrap()
	tick := time.NewTicker(governInterval)
	defer tick.Stop()
	last := monotonic()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			now := monotonic()
			e.tune(now, now-last)
			last = now
		}
	}
}

// measureTrap measures what a hit takes on this machine, beside the program: some 50 ms.
func (e *eventProbes) measureTrap() {
	trap, err := hitcost.Measure(probesite.Push, attach.Uprobe{}, hitcost.Options{})
	if err != nil {
		e.agent.log.Debug("what a hit of a probe takes cannot be measured", "err", err, "taken", e.trapTime())
		return
	}
	e.trap.Store(int64(trap))
}

// trapTime is what a hit takes of a guest beside its program.
func (e *eventProbes) trapTime() time.Duration { return time.Duration(e.trap.Load()) }

// tune sets all rates by what was measured in the time that has passed.
func (e *eventProbes) tune(now, passed time.Duration) {
	counts, err := e.agent.objects.ReadCounts()
	if err != nil {
		return // told by whoever reads them for people
	}
	used := e.agent.guestTime()
	e.mu.Lock()
	defer e.mu.Unlock()
	cpus := (used - e.used).Seconds() / passed.Seconds()
	record := e.recordCost(&counts)
	e.used, e.spent = used, counts
	kinds, trap := e.kinds(), e.trapTime()
	for _, p := range e.plans {
		if p.exact || p.fixed || p.kind == Pauses {
			continue // wanted at any price, or rare
		}
		if p.resting() {
			e.wake(p, now)
			continue
		}
		hits, err := e.hitsOf(p)
		if err != nil {
			continue
		}
		every, err := probesite.Budget{Share: e.opt.Budget / float64(kinds)}.Every(probesite.Load{
			Probe: p.name(), Hits: float64(hits-p.hits) / passed.Seconds(),
			Count: time.Duration(p.traps()) * trap, Record: time.Duration(p.traps())*trap + record, CPUs: max(cpus, 0.1),
		})
		told := float64(hits-p.hits) / passed.Seconds()
		p.hits = hits
		switch {
		case p.perf:
			every = p.faultRate(every, told)
		case err != nil:
			e.putToRest(p, now, err)
			continue
		}
		p.adopt(uint32(every))
		if err := e.setRate(p); err != nil {
			e.agent.log.Warn("cannot set the rate of a probe", "events", p.of, "err", err)
		}
	}
}

// adopt takes on a rate if it is worth it.
func (p *attachedPlan) adopt(every uint32) {
	p.rest = max(p.rest/2, 0)
	if float64(every) > steady*float64(p.every) || float64(p.every) > steady*float64(every) {
		p.every = every
	}
}

// faultRate is of how many page faults one is told: of enough to look them up, at least of the budget's, and of half as many
// as before at least, as they come in bursts.
func (p *attachedPlan) faultRate(budget int, hits float64) int {
	return max(budget, int(hits/faultLookups), int(p.every/2), firstFaults)
}

// recordCost is what a record took of guests when there were some last, on average, beside the trap: 0 if there was none; mu
// is held.
func (e *eventProbes) recordCost(now *bpf.Counts) time.Duration {
	if n := now[bpf.ObservationsAttempted] - e.spent[bpf.ObservationsAttempted]; n > 0 {
		e.record = time.Duration((now[bpf.NsProbes] - e.spent[bpf.NsProbes]) / n)
	}
	return e.record
}

// kinds is how many kinds of events the budget is shared among.
func (e *eventProbes) kinds() int {
	n := 0
	for _, on := range e.opt.Kinds {
		if on {
			n++
		}
	}
	return max(n, 1)
}

// hitsOf is how often what a plan follows began, or happened, since it was attached.
func (e *eventProbes) hitsOf(p *attachedPlan) (sum uint64, err error) {
	var perCPU []bpf.ProbeCount
	for _, cookie := range p.cookies {
		if err := e.objects.ProbeCounts.Lookup(cookie, &perCPU); err != nil {
			return 0, fmt.Errorf("read hits of a probe: %w", err)
		}
		for _, n := range perCPU {
			sum += n.Hits
		}
	}
	return sum, nil
}

// name is that of the probe at which events begin.
func (p *attachedPlan) name() string {
	if len(p.probes) == 0 {
		return p.of
	}
	return p.probes[len(p.probes)-1].name
}

// traps is how many probes one event passes.
func (p *attachedPlan) traps() int {
	if p.kind == Locks {
		return len(p.probes) // the wait's begin and its end, and what is in between
	}
	return 1
}

// putToRest takes the probes of a plan away for a while; mu is held.
func (e *eventProbes) putToRest(p *attachedPlan, now time.Duration, why error) {
	if err := p.detach(); err != nil {
		e.agent.log.Error("cannot take probes away", "events", p.of, "err", err)
	}
	p.rest = min(max(2*p.rest, firstRest), longestRest)
	p.until = now + p.rest
	p.why = why
	e.agent.log.Warn("events rest", "events", p.of, "for", p.rest, "why", why)
}

// wake attaches a plan again whose rest is over; mu is held.
func (e *eventProbes) wake(p *attachedPlan, now time.Duration) {
	if now < p.until {
		return
	}
	if err := p.attach(e.uprobes); err != nil {
		p.until, p.why = now+p.rest, err
	}
}

// notes say which plans were put to rest, and why.
func (e *eventProbes) notes() (list []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.plans {
		if p.why != nil {
			list = append(list, fmt.Sprintf("%s were not recorded all the time: %v", p.of, p.why))
		}
	}
	return list
}

// guestTime is the CPU time of all attached guests that are alive.
func (a *Agent) guestTime() (sum time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.table {
		if p.attachment.Load() == 0 || p.exited.Load() {
			continue
		}
		if used, ok := proc.CPUTime(p.pid); ok {
			sum += used
		}
	}
	return sum
}
