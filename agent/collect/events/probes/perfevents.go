package probes

import (
	"errors"
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// cyclesPeriod is how many cycles one sample stands for: a few hundred samples a second of a busy
// CPU. It is a prime, to avoid synchronizing with loops.
const cyclesPeriod = 9_999_991

// firstFaults is N of the first second, in which one page fault in N is recorded because the rate
// of faults is not known yet: a starting program has about ten thousand a second.
const firstFaults = 17

// perfEvents are the events of the kernel and the CPU, not of probes.
type perfEvents struct {
	objects *bpf.FaultObjects
	events  []*attach.Ticks
}

// newPerfEvents opens the requested events; nil if there are none.
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

// perfPlans returns the plans of perf events, which set the sampling rate of the kernel side. They
// have no probes.
func (e *Probes) perfPlans() (plans []*attachedPlan) {
	if e.Options.Kinds[profile.Faults] {
		plans = append(plans, &attachedPlan{eventPlan: eventPlan{kind: profile.Faults, of: "page faults"},
			cookies: []uint32{bpf.ProbeFault}, every: firstFaults, perf: true})
	}
	if e.Options.Kinds[profile.Cycles] {
		plans = append(plans, &attachedPlan{
			eventPlan: eventPlan{kind: profile.Cycles, of: "cycles and instructions"},
			cookies:   []uint32{bpf.ProbeCycles, bpf.ProbeInstructions}, every: 1, fixed: true, perf: true,
		})
	}
	return plans
}

// start enables all events.
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

// stop disables all events.
func (p *perfEvents) stop() error { return p.each((*attach.Ticks).Stop) }

// refresh follows CPUs that came or went.
func (p *perfEvents) refresh() error { return p.each((*attach.Ticks).Refresh) }

func (p *perfEvents) close() error {
	if p == nil {
		return nil
	}
	return errors.Join(p.each((*attach.Ticks).Close), p.objects.Close())
}

// each does something with all events, even if it failed for one.
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
