package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/attach"
	"github.com/vmprof-agent/vmprof-agent/agent/probesite"
	"github.com/vmprof-agent/vmprof-agent/agent/probesite/hitcost"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// A plan that costs too much even if nothing is told of it is taken away, for a rest that is longer every time.
const (
	firstRest   = 5 * time.Second
	longestRest = 5 * time.Minute
	// steady is by how much a rate must be wrong to be changed: weights of a window should not vary for nothing.
	steady = 1.5
	// checkInterval is how often it is seen whether a probe has spent what it may until the rates are set anew, if one was
	// attached of late: a probe that a guest passes a million times a second has spent a second's budget in a fiftieth of it.
	checkInterval = governInterval / 50
	// checksSkipped is how many of these are none where all probes are known for longer than a second.
	checksSkipped = 4
	// faultLookups is how many page faults a second are told, about: to look one up takes the agent some 50 us.
	faultLookups = 200
)

// govern keeps the probes within the budget until ctx ends.
func (e *eventProbes) govern(ctx context.Context) {
	e.measureTrap()
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	last := monotonic()
	for beat := 0; ; beat++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := monotonic()
		switch {
		case now-last >= governInterval:
			e.tune(now, now-last)
			last = now
		case beat%(1+checksSkipped) == 0, now-time.Duration(e.attached.Load()) < governInterval:
			e.check(now, now-last)
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
	times := e.agent.guestTimes()
	e.mu.Lock()
	defer e.mu.Unlock()
	cpus := e.used.until(times).Seconds() / passed.Seconds()
	e.noteRecordCost(&counts)
	e.used, e.spent = times, counts
	loads := e.loads(passed)
	for _, p := range e.plans {
		if p.resting() && !p.unbound() {
			e.wake(p, now)
		}
	}
	for _, l := range loads {
		p := l.plan
		every, err := e.affordable(l, loads.part(l), cpus)
		p.hits = l.hits
		switch {
		case p.perf:
			every = p.faultRate(every, l.rate)
		case err != nil:
			e.putToRest(p, now, err)
			continue
		}
		p.adopt(uint32(every))
		e.apply(p)
	}
}

// check thins out, or puts to rest, what has spent already, in the time that has passed since the rates were set, more than
// it may until they are set anew: tune would, too, but later.
func (e *eventProbes) check(now, passed time.Duration) {
	counts, err := e.agent.objects.ReadCounts()
	if err != nil {
		return
	}
	times := e.agent.guestTimes()
	e.mu.Lock()
	defer e.mu.Unlock()
	cpus := e.used.until(times).Seconds() / passed.Seconds()
	e.noteRecordCost(&counts)
	e.used.add(times)
	loads := e.loads(governInterval)
	for _, l := range loads {
		p := l.plan
		if p.perf {
			continue
		}
		every, err := e.affordable(l, loads.part(l), cpus)
		switch {
		case err != nil:
			p.hits = l.hits
			e.putToRest(p, now, err)
		case float64(every) > steady*float64(p.every):
			p.every = uint32(every)
			e.apply(p)
		}
	}
}

// apply tells the kernel side a plan's rate; mu is held.
func (e *eventProbes) apply(p *attachedPlan) {
	if err := e.setRate(p); err != nil {
		e.agent.log.Warn("cannot set the rate of a probe", "events", p.of, "err", err)
	}
}

// unbound says that a plan is wanted at any price, or is rare.
func (p *attachedPlan) unbound() bool { return p.exact || p.fixed || p.kind == Pauses }

// affordable is of how many hits of a plan one may be told, if part of its kind's budget is for it and the guests use so many
// CPUs; mu is held. A *probesite.TooHotError if none may.
func (e *eventProbes) affordable(l planLoad, part, cpus float64) (int, error) {
	return probesite.Budget{Share: e.opt.Budget / float64(e.kinds()), Part: part}.Every(probesite.Load{
		Probe: l.plan.name(), Hits: l.rate, Count: l.count, Record: l.count + e.record, CPUs: max(cpus, 0.1),
	})
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

// noteRecordCost takes down what a record took of guests when there were some last, on average, beside the trap; mu is held.
func (e *eventProbes) noteRecordCost(now *bpf.Counts) {
	if n := now[bpf.ObservationsAttempted] - e.spent[bpf.ObservationsAttempted]; n > 0 {
		e.record = time.Duration((now[bpf.NsProbes] - e.spent[bpf.NsProbes]) / n)
	}
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
		return
	}
	e.attached.Store(int64(now))
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
