package probes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/budget"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/probesite"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/probesite/hitcost"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// A plan whose hits are too expensive even without records is observed in slices of time
// (budget.Duty).
const (
	// Steady is the factor by which a rate must be wrong to be changed: weights in a window should
	// not vary needlessly.
	Steady = 1.5
	// GovernEvery is the interval at which rates are set.
	GovernEvery = time.Second
	// checkInterval is the interval of checks whether a recently attached probe has already spent
	// its budget for the time until rates are set again. A probe that a process passes a million
	// times a second spends a second's budget in a fiftieth of it.
	checkInterval = GovernEvery / 50
	// calmInterval is that of these checks once all probes are older than a second. While no process
	// has a probe the governor rests for GovernEvery.
	calmInterval = GovernEvery / 10
	// early is by how much less than an interval may have passed when rates are set, or checked, in
	// the round for that: rounds are in step (proc.InStep), and one may be late.
	early = calmInterval / 4
	// faultLookups is about how many page faults a second are recorded: looking one up takes the
	// agent some 50 us.
	faultLookups = 200
	// leastBudget is the part of the budget of one CPU that events of a kind may always take,
	// however little CPU time the processes use. A nearly idle process has next to no CPU time to
	// take a share of, but its events should still be recorded: its locks matter most.
	leastBudget = 0.3
)

// govern keeps the probes within the budget until ctx ends.
func (e *Probes) govern(ctx context.Context) {
	e.measureTrap()
	tuned := proc.Monotonic()
	checked := tuned
	wait := time.NewTimer(0)
	defer wait.Stop()
	for {
		pause, fresh := e.pause(proc.Monotonic())
		wait.Reset(proc.InStep(pause))
		switch over, ended := e.rest(ctx, wait.C, pause); {
		case ended:
			return
		case !over:
			continue
		}
		now := proc.Monotonic()
		switch {
		case now-tuned >= GovernEvery-early:
			e.tune(now, now-tuned)
			e.forgetFrozen()
			tuned, checked = now, now
		case fresh || now-checked >= calmInterval-early:
			e.check(now, now-tuned)
			checked = now
		}
		e.turn(proc.Monotonic())
		if e.tick != nil {
			e.tick(ctx)
		}
	}
}

// rest waits until a pause is over, or a shorter one is due, or ctx ends.
func (e *Probes) rest(ctx context.Context, pauseOver <-chan time.Time, pause time.Duration) (over, ended bool) {
	attached := e.attached
	if pause == checkInterval {
		attached = nil // There is none that is shorter.
	}
	select {
	case <-ctx.Done():
		return false, true
	case <-attached:
		return false, false
	case <-pauseOver:
		return true, false
	}
}

// pause returns how long the governor may rest, and whether a plan was attached so lately that it may
// spend more than its budget before rates are set.
func (e *Probes) pause(now time.Duration) (pause time.Duration, fresh bool) {
	fresh = now-time.Duration(e.lastAttached.Load()) < GovernEvery
	e.mu.Lock()
	defer e.mu.Unlock()
	// Slices begin and end at their own times.
	sliced := func(p *attachedPlan) bool { return !p.duty.Always() }
	used := func(p *attachedPlan) bool { return !p.idle }
	switch {
	case fresh || slices.ContainsFunc(e.plans, sliced):
		return checkInterval, fresh
	case slices.ContainsFunc(e.plans, used):
		return calmInterval, false
	}
	return GovernEvery, false
}

// measureTrap measures the cost of a hit on this machine, without the program. It takes about 50
// ms.
func (e *Probes) measureTrap() {
	trap, err := hitcost.Measure(probesite.Push, nil, hitcost.Options{})
	if err != nil {
		e.config.Log.Debug("cannot measure the cost of a hit of a probe", "err", err, "taken", e.TrapTime())
		return
	}
	e.trap.Store(int64(trap))
}

// usualTrap is the assumed cost of a hit without the program, into the kernel and back, until it
// has been measured.
const usualTrap = 550 * time.Nanosecond

// TrapTime returns the CPU time of the process that a hit takes, without the BPF program.
func (e *Probes) TrapTime() time.Duration { return time.Duration(e.trap.Load()) }

// tune sets all rates from the measurements of the time that has passed.
func (e *Probes) tune(now, passed time.Duration) {
	m, ok := e.measure()
	if !ok {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.take(&m, now, passed)
	e.used, e.spent, e.fresh = m.times, m.counts, false
	e.watchStrangers(passed)
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
		case e.crowded(p, every, err):
			continue
		case err != nil:
			e.slice(p, now, l, e.part(loads, l), err)
			continue
		}
		p.adopt(uint32(every))
		e.apply(p)
	}
}

// check thins out plans, or observes them in slices, if they have already spent more than they may
// until rates are set again. passed is the time since rates were last set. tune would do the same,
// but later.
func (e *Probes) check(now, passed time.Duration) {
	m, ok := e.measure()
	if !ok {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.take(&m, now, passed)
	e.used.Add(m.times)
	loads := e.loads(GovernEvery)
	e.lend(loads.within(max(passed, checkInterval)))
	for _, l := range loads {
		p := l.plan
		if p.perf || !p.duty.Always() {
			continue
		}
		every, err := e.affordable(l, e.part(loads, l))
		switch {
		case e.crowded(p, every, err):
		case err != nil:
			p.hits = l.hits
			l.rate *= float64(GovernEvery) / float64(max(passed, checkInterval))
			e.slice(p, now, l, e.part(loads, l), err)
		case float64(every) > Steady*float64(p.every):
			p.every = uint32(every)
			e.apply(p)
		}
	}
}

// A measurement is the CPU time that processes have used, and the kernel side's counts, until now.
type measurement struct {
	times  budget.Times
	counts bpf.Counts
}

// measure takes a measurement; mu is not held, as reading takes time. It returns false if the
// kernel side's counters cannot be read: other readers of them report that.
func (e *Probes) measure() (m measurement, ok bool) {
	counts, err := e.config.Objects.ReadCounts()
	if err != nil {
		return m, false
	}
	return measurement{e.config.GuestTimes(), counts}, true
}

// take applies a measurement for the time since rates were set; mu is held.
func (e *Probes) take(m *measurement, now, passed time.Duration) {
	e.now = now
	e.measureCPUs(m.times, passed)
	e.noteRecordCost(&m.counts)
}

// measureCPUs records how many CPUs the processes have used since rates were set. A process
// attached since then counts as using one CPU, as too little is known to assume fewer. mu is held.
func (e *Probes) measureCPUs(times budget.Times, passed time.Duration) {
	e.fresh = e.fresh || e.used.Lacks(times)
	e.cpus = e.used.Until(times).Seconds() / passed.Seconds()
	e.each = e.used.Each(times, passed)
	if e.fresh {
		e.cpus = max(e.cpus, 1)
	}
}

// cpusOf is how many CPUs the processes use that a plan observes; mu is held. A process that is new
// counts as using one CPU.
func (e *Probes) cpusOf(p *attachedPlan) float64 {
	if p.process == nil {
		return e.cpus
	}
	if cpus, ok := e.each[p.process.Attachment.Load()]; ok {
		return cpus
	}
	return 1
}

// apply sends a plan's rate to the kernel side; mu is held.
func (e *Probes) apply(p *attachedPlan) {
	if err := e.setRate(p); err != nil {
		e.config.Log.Warn("cannot set the rate of a probe", "events", p.of, "err", err)
	}
}

// unbound reports whether a plan ignores the budget: because it was requested at any cost, or is
// rare.
func (p *attachedPlan) unbound() bool {
	return p.exact || p.ends || p.fixed || p.kind == profile.Pauses
}

// UsedCPUs is how many CPUs the processes used when rates were last set.
func (e *Probes) UsedCPUs() float64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.cpus
}

// AffordableCPUs is how many CPUs the probes of a kind may take while processes use so many.
func (e *Probes) AffordableCPUs(kind profile.EventKind, used float64) float64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.allowance(kind, 1, 1).CPUs(max(used, 1e-9))
}

// allowance returns the allowance of a plan of some kind that gets this part of the kind's; mu is
// held.
func (e *Probes) allowance(kind profile.EventKind, part float64, slices int) budget.Allowance {
	return budget.Allowance{
		Share: e.FairShare() + e.lent[kind], Part: part, Least: leastBudget * e.Options.Budget, Slices: slices,
	}
}

// loadOf returns the measured load of a plan; mu is held. If a library was found recently, too
// little is known about its processes to assume that they use few CPUs.
func (e *Probes) loadOf(l planLoad) budget.Load {
	cpus := e.cpusOf(l.plan)
	if born := l.plan.cover.BornAt(); born > 0 && e.now-born < GovernEvery {
		cpus = max(cpus, 1)
	}
	return budget.Load{
		Probe: l.plan.name(), Hits: l.rate, Count: l.count, Record: l.count + e.recordTime(l.plan),
		CPUs: max(cpus, 1e-9),
	}
}

// affordable returns N if one in N hits of a plan may be recorded, if it is observed all the time
// and gets this part of its kind's budget; mu is held. It returns a *budget.TooHotError if none
// may.
func (e *Probes) affordable(l planLoad, part float64) (int, error) {
	return e.allowance(l.plan.kind, part, 1).Every(e.loadOf(l))
}

// adopt sets a new rate if the change is worth it.
func (p *attachedPlan) adopt(every uint32) {
	if float64(every) > Steady*float64(p.every) || float64(p.every) > Steady*float64(every) {
		p.every = every
	}
}

// faultRate returns N if one in N page faults is recorded. N is large enough for looking them up,
// at least the budget's, and at least half of the previous one, as faults come in bursts.
func (p *attachedPlan) faultRate(budget int, hits float64) int {
	return max(budget, int(hits/faultLookups), int(p.every/2), firstFaults)
}

// noteRecordCost updates the average cost of the latest records, without the trap; mu is held.
func (e *Probes) noteRecordCost(now *bpf.Counts) {
	if n := now[bpf.ObservationsAttempted] - e.spent[bpf.ObservationsAttempted]; n > 0 {
		e.record = time.Duration((now[bpf.NsProbes] - e.spent[bpf.NsProbes]) / n)
	}
}

// FairShare is the part of the processes' CPU time for each kind of events.
func (e *Probes) FairShare() float64 { return e.Options.Budget / float64(e.kinds()) }

// lend moves unneeded parts of some kinds' shares to kinds that need more; mu is held.
func (e *Probes) lend(loads planLoads) {
	var claims [profile.EventKinds]budget.Claim
	for _, l := range loads {
		claims[l.plan.kind].Need += l.full / max(e.cpus, 1e-9)
	}
	for kind, wanted := range e.Options.Kinds {
		claims[kind].Fixed = !wanted
	}
	// These kinds have costs that are not among the loads.
	claims[profile.OffCPU].Fixed, claims[profile.Wall].Fixed = true, true
	claims[profile.Locks].Fixed = claims[profile.Locks].Fixed || e.Options.MonitorEnters
	for _, p := range e.plans {
		if p.unbound() && !p.ends && p.kind != profile.Pauses {
			claims[p.kind].Fixed = true
		}
	}
	copy(e.lent[:], budget.Lend(e.FairShare(), claims[:]))
}

// kinds returns the number of kinds of events that share the budget.
func (e *Probes) kinds() int {
	n := 0
	for _, on := range e.Options.Kinds {
		if on {
			n++
		}
	}
	return max(n, 1)
}

// hitsOf returns how often the events of a plan began, or happened, since its probes were first
// attached; mu is held.
func (e *Probes) hitsOf(p *attachedPlan) (sum uint64, err error) {
	var perCPU []bpf.ProbeCount
	var recorded, freed, releases uint64
	for _, cookie := range p.cookies {
		if err := e.Programs.ProbeCounts.Lookup(cookie, &perCPU); err != nil {
			return 0, fmt.Errorf("read hits of a probe: %w", err)
		}
		for _, n := range perCPU {
			sum, recorded, freed, releases = sum+n.Hits, recorded+n.Told, freed+n.Free, releases+n.Releases
		}
	}
	p.noteRecords(recorded, freed, releases)
	return sum, nil
}

// fairlyMany is the number of hits from which the number of their records is computed.
const fairlyMany = 64

// noteRecords computes how many records a hit has: none if it found a free monitor, and one more
// for each release of the lock while the thread waits. The counts start when the probes are first
// attached.
func (p *attachedPlan) noteRecords(recorded, freed, releases uint64) {
	if recorded < p.recorded+fairlyMany {
		return
	}
	n := float64(recorded - p.recorded)
	free := min(float64(freed-p.freed)/n, 1) // the counts of a hit are not read together
	p.extra = float64(releases-p.releases)/n - free
	p.recorded, p.freed, p.releases = recorded, freed, releases
}

// recordTime returns the average time for the records of a hit that may have one; not all of them
// do. mu is held.
func (e *Probes) recordTime(p *attachedPlan) time.Duration {
	return time.Duration(float64(e.record) * (1 + p.extra))
}

// name returns the name of the probe at which events begin.
func (p *attachedPlan) name() string {
	if len(p.probes) == 0 {
		return p.of
	}
	return p.probes[len(p.probes)-1].name
}

// traps returns how many probes one event passes.
func (p *attachedPlan) traps() int {
	if p.kind != profile.Locks {
		return 1
	}
	n := 0
	for _, probe := range p.probes { // the beginning and end of the wait, and probes in between
		if !probe.rare {
			n++
		}
	}
	return n
}

// countTime returns the time that an event of a plan takes from a process without a record.
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
	// Hits before the last probe was attached are left out: the time of attaching is not observed.
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

// sliceOf returns the slice that a duty has begun.
func sliceOf(d *budget.Duty) *fold.Slice {
	return &fold.Slice{To: d.To, Weight: d.Weight, Length: d.Length, Cycle: d.Cycle()}
}

// vanish removes the probes of a plan; mu is held.
func (e *Probes) vanish(p *attachedPlan, now time.Duration) {
	p.duty.On = false
	p.cover.End(now)
	e.apply(p) // this takes effect before the probes are removed
	if err := p.detach(); err != nil {
		e.config.Log.Error("cannot remove probes", "events", p.of, "err", err)
	}
}
