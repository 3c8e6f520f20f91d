package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/wait"
)

// A probe is a sampling program at work.
type probe struct {
	*meter
	stop func() error
}

func (p *probe) close() error { return errors.Join(p.stop(), p.meter.close()) }

// startProbe starts the empty program, or the agent for one process.
func (b bench) startProbe(ctx context.Context, m mode, pid, hz int) (*probe, error) {
	if m == modeEmpty {
		return startEmpty(hz)
	}
	run, err := b.agent.Start(ctx, profiler.Options{PID: pid, Frequency: hz, Extra: m.flags()})
	if err != nil {
		return nil, err
	}
	stop := func() error {
		recording, err := run.Stop()
		if err != nil {
			return err
		}
		return recording.Stats.CheckIdentities()
	}
	if err := run.WaitSampling(); err != nil {
		return nil, errors.Join(err, stop())
	}
	meter, err := agentMeter(run.PID())
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	p := &probe{meter, stop}
	if err := p.waitTicks(); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

// tickTimeout bounds the wait for the first tick: the agent looks at all processes before.
const tickTimeout = 20 * time.Second

// waitTicks waits until the program runs. That its events are open is not enough: they may be off.
func (p *probe) waitTicks() error {
	return wait.Until(context.Background(), tickTimeout, "the sampling program has run", func() (bool, error) {
		r, err := p.read()
		return r.runs > 0, err
	})
}

// startEmpty has a program that does nothing run on the events that the agent samples with: the
// least that any sampling program can take by the kernel's clock.
func startEmpty(hz int) (*probe, error) {
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "empty", Type: ebpf.PerfEvent, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		return nil, fmt.Errorf("load the empty program: %w", err)
	}
	ticks, err := attach.NewTicks(program, hz)
	if err != nil {
		return nil, errors.Join(err, program.Close())
	}
	p := &probe{meter: &meter{program: program}, stop: ticks.Close}
	if err := ticks.Start(); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}
