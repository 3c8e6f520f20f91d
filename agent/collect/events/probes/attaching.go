package probes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/probesite"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/elffile"
)

// find finds the plans of recorded events for lib, and lists what it lacks. It reads the file.
func (e *Probes) find(lib *elffile.File, f *os.File) (plans []*attachedPlan, lacks []string) {
	finder := probesite.New(lib, f)
	for _, plan := range eventPlans(e.Programs, finder) {
		if !e.wants(&plan) {
			continue
		}
		p := &attachedPlan{eventPlan: plan, every: 1}
		if err := p.find(finder); err != nil {
			lacks = append(lacks, lack(&plan, err)) // logged by the caller, if it still exists
			continue
		}
		lacks = append(lacks, p.lacks...)
		plans = append(plans, p)
	}
	return plans, lacks
}

// attach attaches plans to the library f, and returns why others cannot be attached. Hits are
// recorded after adopt.
func (e *Probes) attach(plans []*attachedPlan, f *os.File) (attached []*attachedPlan, lacks []string) {
	for _, p := range plans {
		if err := e.attachPlan(p, f); err != nil {
			lacks = append(lacks, e.refuse(&p.eventPlan, f, err))
			continue
		}
		attached = append(attached, p)
	}
	return attached, lacks
}

// refuse logs that a plan cannot be attached, and returns the note for profiles.
func (e *Probes) refuse(plan *eventPlan, f *os.File, err error) string {
	e.config.Log.Warn("events of JVMs are not recorded", "events", plan.of, "library", f.Name(), "err", err)
	return lack(plan, err)
}

func lack(plan *eventPlan, err error) string {
	return fmt.Sprintf("%s are not recorded: %v", plan.of, err)
}

func (e *Probes) wants(plan *eventPlan) bool {
	if k := &e.Options.Kinds; plan.kind == profile.Pauses && (k[profile.Faults] || k[profile.Allocations] ||
		k[profile.Barriers]) {
		// Objects move while Java threads stand still, and allocation buffers and queues of cards
		// are taken away.
		return true
	}
	return e.Options.Kinds[plan.kind] && (!plan.exact || e.Options.ExactAllocations)
}

// attachPlan attaches all probes of a plan, or none. The plan belongs to the caller until it is
// adopted.
func (e *Probes) attachPlan(p *attachedPlan, f *os.File) (err error) {
	if p.file, err = os.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd())); err != nil {
		return fmt.Errorf("keep library open: %w", err)
	}
	if err = e.prepare(p, p.register); err == nil {
		err = p.attach(e.uprobes)
	}
	if err != nil {
		err = errors.Join(err, p.close())
		e.free(p.cookies) // none of their hits was recorded
	}
	return err
}

// prepare assigns cookies to a plan's sites. No hit is recorded until the plan is adopted.
func (e *Probes) prepare(p *attachedPlan, register func(next func() (uint32, error)) error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := register(e.register); err != nil {
		return err
	}
	for _, cookie := range p.cookies {
		if err := e.Programs.Probes.Put(cookie, bpf.ProbeRate{Off: 1}); err != nil {
			return fmt.Errorf("set the rate of a probe: %w", err)
		}
	}
	return nil
}

// adopt starts to record and govern the hits of attached plans.
func (e *Probes) adopt(plans []*attachedPlan) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range plans {
		if p.removed {
			continue // the process has ended
		}
		p.turn++
		if p.process != nil {
			p.inherit()
		}
		if !p.ends {
			p.cover.Begin(proc.Monotonic(), nil)
			e.Covers.add(p)
		}
		e.plans = append(e.plans, p)
		e.apply(p)
	}
	e.noteAttached()
}

// noteAttached has the governor watch probes closely from now on.
func (e *Probes) noteAttached() {
	e.lastAttached.Store(int64(proc.Monotonic()))
	select {
	case e.attached <- struct{}{}:
	default: // it has not seen the one before yet
	}
}

// setIdle records whether no known process maps the library of plans.
func (e *Probes) setIdle(plans []*attachedPlan, idle bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range plans {
		p.idle = idle
		e.apply(p)
	}
	if !idle {
		e.noteAttached()
	}
}

// remove detaches the probes of plans, which takes some 50 ms each, and frees their cookies.
// Records of their last hits may be in the ring: until those are handled, the cookies get no other
// owner.
func (e *Probes) remove(ctx context.Context, plans []*attachedPlan) {
	var cookies []uint32
	e.mu.Lock()
	plans = slices.DeleteFunc(slices.Clone(plans), func(p *attachedPlan) bool { return p.removed })
	e.plans = slices.DeleteFunc(e.plans, func(p *attachedPlan) bool { return slices.Contains(plans, p) })
	for _, p := range plans {
		p.removed, p.users = true, nil
		p.cover.Retire(proc.Monotonic())
		cookies = append(cookies, p.cookies...)
	}
	e.mu.Unlock()
	if len(plans) == 0 {
		return
	}
	for _, p := range plans {
		if err := p.close(); err != nil {
			e.config.Log.Error("cannot remove probes", "events", p.of, "err", err)
		}
	}
	if err := e.config.Flush(ctx); err != nil {
		return // the agent ends
	}
	e.values.forget(cookies)
	for _, p := range plans {
		e.Covers.remove(p)
		p.cookies = nil
	}
	e.free(cookies)
}

var errTooManyProbes = fmt.Errorf("more than %d probes of events are attached at once: record fewer kinds of events",
	bpf.MaxProbes)

func newCookies() numbering { return numbering{bound: bpf.MaxProbes} }

// register returns a cookie without counted hits; mu is held.
func (e *Probes) register() (uint32, error) {
	cookie, ok := e.cookies.take()
	if !ok {
		return 0, errTooManyProbes
	}
	cpus, err := ebpf.PossibleCPU()
	if err == nil {
		err = e.Programs.ProbeCounts.Put(cookie, make([]bpf.ProbeCount, cpus))
	}
	if err != nil {
		e.cookies.give([]uint32{cookie})
		return 0, fmt.Errorf("reset the count of a probe: %w", err)
	}
	return cookie, nil
}

// free returns cookies.
func (e *Probes) free(cookies []uint32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cookies.give(cookies)
}

// setRate sets N for a plan's probes: the kernel side records one hit in N; mu is held.
func (e *Probes) setRate(p *attachedPlan) error {
	rate := bpf.ProbeRate{Turn: p.turn}
	if p.off {
		rate.Off = 1
	}
	if e.recording && !p.idle && e.Options.Kinds[p.kind] && !p.silent() {
		rate.Every = p.every
	}
	for _, cookie := range p.cookies {
		if err := e.Programs.Probes.Put(cookie, rate); err != nil {
			return fmt.Errorf("set the rate of a probe: %w", err)
		}
	}
	return nil
}

// setRecording starts or stops the recording of hits.
func (e *Probes) setRecording(on bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.recording = on
	if on {
		if err := e.perf.start(); err != nil {
			return err
		}
	} else if err := e.perf.stop(); err != nil {
		return err
	}
	for _, p := range e.plans {
		if err := e.setRate(p); err != nil {
			return err
		}
	}
	return nil
}

// A numbering gives out the numbers below a bound, each to one owner at a time.
type numbering struct {
	next, bound uint32
	free        []uint32 // below next
}

// take returns a free number, the one that was returned longest ago; false if there is none.
func (n *numbering) take() (uint32, bool) {
	if len(n.free) > 0 {
		number := n.free[0]
		n.free = n.free[1:]
		return number, true
	}
	if n.next >= n.bound {
		return 0, false
	}
	n.next++
	return n.next - 1, true
}

// give returns numbers whose owner is gone.
func (n *numbering) give(numbers []uint32) { n.free = append(slices.Clip(n.free), numbers...) }
