package events

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/attach"
	"github.com/vmprof-agent/vmprof-agent/agent/budget"
	"github.com/vmprof-agent/vmprof-agent/agent/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/probesite"
	"github.com/vmprof-agent/vmprof-agent/agent/probesite/hitcost"
	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// A plan whose hits cost too much even if nothing is recorded of them is observed in slices of time (budget.Duty).
const (
	// steady is by how much a rate must be wrong to be changed: weights of a window should not vary for nothing.
	steady = 1.5
	// governEvery is how often rates are set anew.
	governEvery = time.Second
	// checkInterval is how often the governor looks whether a probe has spent what it may until the rates are set anew, if one
	// was attached recently: a probe that a process passes a million times a second spends a second's budget in a fiftieth of it.
	checkInterval = governEvery / 50
	// checksSkipped is how many of these are none where all probes are known for longer than a second.
	checksSkipped = 4
	// faultLookups is how many page faults a second are recorded, about: to look one up takes the agent some 50 us.
	faultLookups = 200
	// leastBudget is the part of one CPU that events of a kind may take however little CPU time the processes use. A process
	// that is nearly idle has next to no CPU time to take a share of, and what it does is still to be seen.
	leastBudget = 0.002
)

// govern keeps the probes within the budget until ctx ends.
func (e *Probes) govern(ctx context.Context) {
	e.measureTrap()
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	last := proc.Monotonic()
	for beat := 0; ; beat++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := proc.Monotonic()
		switch {
		case now-last >= governEvery:
			e.tune(now, now-last)
			last = now
		case beat%(1+checksSkipped) == 0, now-time.Duration(e.lastAttached.Load()) < governEvery:
			e.check(now, now-last)
		}
		e.turn(proc.Monotonic())
	}
}

// measureTrap measures the cost of a hit on this machine, without the program. It takes about 50 ms.
func (e *Probes) measureTrap() {
	trap, err := hitcost.Measure(probesite.Push, attach.Uprobe{}, hitcost.Options{})
	if err != nil {
		e.config.Log.Debug("cannot measure the cost of a hit of a probe", "err", err, "taken", e.TrapTime())
		return
	}
	e.trap.Store(int64(trap))
}

// usualTrap is the assumed cost of a hit without the program, into the kernel and back, until it has been measured.
const usualTrap = 550 * time.Nanosecond

// TrapTime returns the CPU time that a hit takes of a process, without the program.
func (e *Probes) TrapTime() time.Duration { return time.Duration(e.trap.Load()) }

// tune sets all rates by what was measured in the time that has passed.
func (e *Probes) tune(now, passed time.Duration) {
	m, ok := e.measure()
	if !ok {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.take(&m, now, passed)
	e.used, e.spent, e.fresh = m.times, m.counts, false
	loads := e.loads(passed)
	e.lend(loads)
	for _, l := range loads {
		p := l.plan
		if !p.duty.Always() {
			continue // turn sets its rate, for a whole cycle
		}
		every, err := e.affordable(l, e.part(loads, l))
		p.hits = l.hits
		switch {
		case p.perf:
			every = p.faultRate(every, l.rate)
		case err != nil:
			e.slice(p, now, l, e.part(loads, l), err)
			continue
		}
		p.adopt(uint32(every))
		e.apply(p)
	}
}

// check thins out, or observes in slices, what has spent already, in the time that has passed since the rates were set, more
// than it may until they are set anew: tune would do the same, but later.
func (e *Probes) check(now, passed time.Duration) {
	m, ok := e.measure()
	if !ok {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.take(&m, now, passed)
	e.used.Add(m.times)
	e.lend(e.loads(max(passed, checkInterval)))
	loads := e.loads(governEvery)
	for _, l := range loads {
		p := l.plan
		if p.perf || !p.duty.Always() {
			continue
		}
		every, err := e.affordable(l, e.part(loads, l))
		switch {
		case err != nil:
			p.hits = l.hits
			l.rate *= float64(governEvery) / float64(max(passed, checkInterval))
			e.slice(p, now, l, e.part(loads, l), err)
		case float64(every) > steady*float64(p.every):
			p.every = uint32(every)
			e.apply(p)
		}
	}
}

// A measurement is what processes have used, and what the kernel side has counted, until now.
type measurement struct {
	times  budget.Times
	counts bpf.Counts
}

// measure measures; mu is not held, as reading takes time. It is false if the kernel side's counters cannot be read: whoever reads
// them for people reports that.
func (e *Probes) measure() (m measurement, ok bool) {
	counts, err := e.config.Objects.ReadCounts()
	if err != nil {
		return m, false
	}
	return measurement{e.config.GuestTimes(), counts}, true
}

// take notes what a measurement says of the time since rates were set; mu is held.
func (e *Probes) take(m *measurement, now, passed time.Duration) {
	e.now = now
	e.measureCPUs(m.times, passed)
	e.noteRecordCost(&m.counts)
}

// measureCPUs notes how many CPUs the processes have used since rates were set. Of a process that was attached since then
// too little is known to say that it uses few; it is taken to use one. mu is held.
func (e *Probes) measureCPUs(times budget.Times, passed time.Duration) {
	e.fresh = e.fresh || e.used.Lacks(times)
	e.cpus = e.used.Until(times).Seconds() / passed.Seconds()
	if e.fresh {
		e.cpus = max(e.cpus, 1)
	}
}

// apply tells the kernel side a plan's rate; mu is held.
func (e *Probes) apply(p *attachedPlan) {
	if err := e.setRate(p); err != nil {
		e.config.Log.Warn("cannot set the rate of a probe", "events", p.of, "err", err)
	}
}

// unbound says that a plan is wanted at any price, or is rare.
func (p *attachedPlan) unbound() bool { return p.exact || p.fixed || p.kind == profile.Pauses }

// allowance is that of a plan of some kind if part of the kind's is for it; mu is held.
func (e *Probes) allowance(kind profile.EventKind, part float64, slices int) budget.Allowance {
	return budget.Allowance{
		Share: e.FairShare() + e.lent[kind], Part: part, Least: min(leastBudget, e.Options.Budget), Slices: slices,
	}
}

// loadOf is what was measured of a plan; mu is held. Of the processes of a library that was found recently, too little is
// known, too, to say that they use few CPUs.
func (e *Probes) loadOf(l planLoad) budget.Load {
	cpus := e.cpus
	if born := l.plan.cover.BornAt(); born > 0 && e.now-born < governEvery {
		cpus = max(cpus, 1)
	}
	return budget.Load{
		Probe: l.plan.name(), Hits: l.rate, Count: l.count, Record: l.count + e.recordTime(l.plan), CPUs: max(cpus, 1e-9),
	}
}

// affordable is of how many hits of a plan one may be recorded, if it is observed all the time and part of its kind's budget
// is for it; mu is held. A *budget.TooHotError if none may.
func (e *Probes) affordable(l planLoad, part float64) (int, error) {
	return e.allowance(l.plan.kind, part, 1).Every(e.loadOf(l))
}

// adopt takes on a rate if it is worth it.
func (p *attachedPlan) adopt(every uint32) {
	if float64(every) > steady*float64(p.every) || float64(p.every) > steady*float64(every) {
		p.every = every
	}
}

// faultRate is of how many page faults one is recorded: of enough to look them up, at least of the budget's, and of half as
// many as before at least, as they come in bursts.
func (p *attachedPlan) faultRate(budget int, hits float64) int {
	return max(budget, int(hits/faultLookups), int(p.every/2), firstFaults)
}

// noteRecordCost notes the average cost of the latest records, without the trap; mu is held.
func (e *Probes) noteRecordCost(now *bpf.Counts) {
	if n := now[bpf.ObservationsAttempted] - e.spent[bpf.ObservationsAttempted]; n > 0 {
		e.record = time.Duration((now[bpf.NsProbes] - e.spent[bpf.NsProbes]) / n)
	}
}

// FairShare is the part of the processes' CPU time that is each kind's.
func (e *Probes) FairShare() float64 { return e.Options.Budget / float64(e.kinds()) }

// lend gives what some kinds do not need of their shares to those that need more; mu is held.
func (e *Probes) lend(loads planLoads) {
	var claims [profile.EventKinds]budget.Claim
	for _, l := range loads {
		claims[l.plan.kind].Need += l.full / max(e.cpus, 1e-9)
	}
	for kind, wanted := range e.Options.Kinds {
		claims[kind].Fixed = !wanted
	}
	// Something takes part of these shares that is not among the loads.
	claims[profile.Locks].Fixed = claims[profile.Locks].Fixed || e.Options.MonitorEnters
	for _, p := range e.plans {
		if p.unbound() && p.kind != profile.Pauses {
			claims[p.kind].Fixed = true
		}
	}
	copy(e.lent[:], budget.Lend(e.FairShare(), claims[:]))
}

// kinds is how many kinds of events the budget is shared among.
func (e *Probes) kinds() int {
	n := 0
	for _, on := range e.Options.Kinds {
		if on {
			n++
		}
	}
	return max(n, 1)
}

// hitsOf is how often the events of a plan began, or happened, since its probes were attached first; mu is held.
func (e *Probes) hitsOf(p *attachedPlan) (sum uint64, err error) {
	var perCPU []bpf.ProbeCount
	var told, freed uint64
	for _, cookie := range p.cookies {
		if err := e.Programs.ProbeCounts.Lookup(cookie, &perCPU); err != nil {
			return 0, fmt.Errorf("read hits of a probe: %w", err)
		}
		for _, n := range perCPU {
			sum, told, freed = sum+n.Hits, told+n.Told, freed+n.Free
		}
	}
	p.noteFree(told, freed)
	return sum, nil
}

// fairlyMany is of how many hits the share is reckoned that found a free monitor.
const fairlyMany = 64

// noteFree computes the share of hits that found a free monitor. told and freed count from the first attachment of the probes on.
func (p *attachedPlan) noteFree(told, freed uint64) {
	if told < p.told+fairlyMany {
		return
	}
	p.free = min(float64(freed-p.freed)/float64(told-p.told), 1) // the counts of a hit are not read together
	p.told, p.freed = told, freed
}

// recordTime is what the record of a hit takes on average, as not all hits that may have one do; mu is held.
func (e *Probes) recordTime(p *attachedPlan) time.Duration {
	return time.Duration(float64(e.record) * (1 - p.free))
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
	if p.kind == profile.Locks {
		return len(p.probes) // the wait's begin and its end, and what is in between
	}
	return 1
}

// countTime is what an event of a plan takes of a process if it is not recorded.
func (e *Probes) countTime(p *attachedPlan) time.Duration {
	return time.Duration(p.traps()) * e.TrapTime()
}

// appear attaches a plan and begins to observe it: for a slice, or all the time; mu is held.
func (e *Probes) appear(p *attachedPlan, now time.Duration) error {
	p.turn++
	before := proc.Monotonic()
	if err := errors.Join(e.setRate(p), p.attach(e.uprobes)); err != nil {
		return err
	}
	// What the first probes saw until the last one was there is left out: the time that attaching takes is not observed.
	now += proc.Monotonic() - before
	if p.duty.Always() {
		p.cover.Begin(now, nil)
	} else {
		p.duty.Open(now, p.duty.Limit)
		p.cover.Begin(now, sliceOf(&p.duty))
	}
	e.Covers.add(p)
	return nil
}

// sliceOf is the slice that a duty has begun.
func sliceOf(d *budget.Duty) *fold.Slice {
	return &fold.Slice{To: d.To, Weight: d.Weight, Length: d.Length, Cycle: d.Cycle()}
}

// vanish takes the probes of a plan away; mu is held.
func (e *Probes) vanish(p *attachedPlan, now time.Duration) {
	p.duty.On = false
	p.cover.End(now)
	e.apply(p) // sooner than probes are gone
	if err := p.detach(); err != nil {
		e.config.Log.Error("cannot remove probes", "events", p.of, "err", err)
	}
}
