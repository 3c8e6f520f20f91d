package events

import (
	"errors"
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/agent/attach"
	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// cyclesPeriod is how many cycles one sample stands for: a few hundred a second of a busy CPU. It is a prime, so that it
// does not march in step with loops.
const cyclesPeriod = 9_999_991

// firstFaults is N of the first second, in which one page fault in N is recorded because the rate of faults is not known yet: a
// program that starts has about ten thousand a second.
const firstFaults = 17

// perfEvents are the events that come from the kernel and the CPU, not from probes.
type perfEvents struct {
	objects *bpf.FaultObjects
	events  []*attach.Ticks
}

// newPerfEvents opens what is wanted; nil if nothing is.
func (e *Probes) newPerfEvents() (_ *perfEvents, err error) {
	if !e.Options.Kinds[profile.Faults] && !e.Options.Kinds[profile.Cycles] {
		return nil, nil
	}
	p := &perfEvents{}
	if p.objects, err = e.config.Objects.LoadFaults(e.Programs); err != nil {
		return nil, e.config.Refusal(err)
	}
	open := func(t *attach.Ticks, err error) error {
		if err == nil {
			p.events = append(p.events, t)
		}
		return err
	}
	if e.Options.Kinds[profile.Faults] {
		err = open(attach.NewFaults(p.objects.PageFault))
	}
	if e.Options.Kinds[profile.Cycles] && err == nil {
		err = errors.Join(
			open(attach.NewOverflows(p.objects.Overflow, attach.Cycles, cyclesPeriod)),
			open(attach.NewOverflows(p.objects.Overflow, attach.Instructions, bpf.InstructionsPeriod)),
		)
		if errors.Is(err, attach.ErrNoCounters) {
			err = fmt.Errorf("-e cpi: %w: remove cpi", attach.ErrNoCounters)
		}
	}
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

// perfPlans returns the plans of perf events, which set how many of those the kernel side records. They have no probes.
func (e *Probes) perfPlans() (plans []*attachedPlan) {
	if e.Options.Kinds[profile.Faults] {
		plans = append(plans, &attachedPlan{eventPlan: eventPlan{kind: profile.Faults, of: "page faults"}, cookies: []uint32{bpf.ProbeFault}, every: firstFaults, perf: true})
	}
	if e.Options.Kinds[profile.Cycles] {
		plans = append(plans, &attachedPlan{
			eventPlan: eventPlan{kind: profile.Cycles, of: "cycles and instructions"}, cookies: []uint32{bpf.ProbeCycles, bpf.ProbeInstructions}, every: 1, fixed: true, perf: true,
		})
	}
	return plans
}

// start lets all events come.
func (p *perfEvents) start() error {
	if p == nil {
		return nil
	}
	for _, t := range p.events {
		if err := t.Start(); err != nil {
			return err
		}
	}
	return nil
}

// stop lets none come any more.
func (p *perfEvents) stop() error { return p.each((*attach.Ticks).Stop) }

// refresh follows CPUs that came or went.
func (p *perfEvents) refresh() error { return p.each((*attach.Ticks).Refresh) }

func (p *perfEvents) close() error {
	if p == nil {
		return nil
	}
	return errors.Join(p.each((*attach.Ticks).Close), p.objects.Close())
}

// each does something with all events, also after it failed for one.
func (p *perfEvents) each(do func(*attach.Ticks) error) error {
	if p == nil {
		return nil
	}
	var errs []error
	for _, t := range p.events {
		errs = append(errs, do(t))
	}
	return errors.Join(errs...)
}
