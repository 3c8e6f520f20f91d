package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
)

// Turns are how guests are compared with themselves: without the agent, with it, without it, and so on. In a turn one
// guest works after the other, while the others wait, so that one agent serves them all.
type turns struct {
	m      meter
	engine string // "page"
	socket string // where guests look for the agent
	guests []*paced
}

// startVM starts a program of the reference guest. It looks for the agent at t's socket.
func (t *turns) startVM(ctx context.Context, vm guests.VM, program string) error {
	run, err := vm.Start(ctx, guests.VMOptions{Program: program, Socket: t.socket})
	if err != nil {
		return err
	}
	return t.add(program, vmGuest{run})
}

// add takes a guest in, which it closes later, and has it work until it is warm.
func (t *turns) add(name string, g callGuest) error {
	p := &paced{callGuest: g, name: name}
	t.guests = append(t.guests, p)
	for n := 1; ; n *= 2 {
		cpu, err := g.work(n)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if cpu >= t.m.how.rest {
			p.iteration = cpu / time.Duration(n)
			return nil
		}
	}
}

func (t *turns) close() error {
	var errs []error
	for _, g := range t.guests {
		errs = append(errs, g.close())
	}
	return errors.Join(errs...)
}

// rest is a turn without the agent.
func (t *turns) rest(d time.Duration) error {
	for _, g := range t.guests {
		_, iteration, err := g.turn(d)
		if err != nil {
			return err
		}
		g.rests = append(g.rests, iteration)
	}
	return nil
}

// record is a turn with the agent. Of the rate, what is 0 is the agent's choice.
func (t *turns) record(ctx context.Context, rate profile.Rate, d time.Duration) error {
	run, err := t.m.agent.Start(ctx, t.options(rate))
	if err != nil {
		return err
	}
	if err := t.work(run, d); err != nil {
		_, ended := run.Stop()
		return errors.Join(err, ended)
	}
	recording, err := run.Stop()
	if err != nil {
		return err
	}
	if err := recording.Stats.CheckIdentities(); err != nil {
		return err
	}
	var cpu time.Duration // of all
	for _, g := range t.guests {
		cpu += g.latest().cpu
	}
	for _, g := range t.guests {
		r := g.latest()
		r.stats = recording.Stats.Calls
		r.calls = float64(r.stats.Folded) * float64(r.cpu) / float64(cpu)
		if r.found, err = recordedCalls(recording.Profile, g.pid()); err != nil {
			return err
		}
	}
	return nil
}

// work has the guests work one after the other, once the agent samples. What they did until then is in the recording,
// too, and changes no share, as iterations are alike.
func (t *turns) work(run *profiler.AgentRun, d time.Duration) error {
	if err := run.WaitSampling(); err != nil {
		return err
	}
	for _, g := range t.guests {
		if err := errors.Join(g.await(), discard(g.truth())); err != nil {
			return fmt.Errorf("%s: %w", g.name, err)
		}
	}
	for _, g := range t.guests {
		var r recorded
		var err error
		if r.cpu, r.iteration, err = g.turn(d); err != nil {
			return err
		}
		if r.truth, err = g.truth(); err != nil {
			return fmt.Errorf("%s: %w", g.name, err)
		}
		g.recorded = append(g.recorded, r)
	}
	return nil
}

func discard(_ *callGraph, err error) error { return err }

// options are how to record the guests.
func (t *turns) options(rate profile.Rate) profiler.Options {
	o := profiler.Options{Frequency: rate.Hz, Extra: []string{
		"-e", "calls", "--engine", t.engine, "--guest-socket", t.socket,
	}}
	if rate.Stride > 0 {
		o.Extra = append(o.Extra, "--stride", strconv.Itoa(rate.Stride))
	}
	if rate.Samples > 0 {
		o.Extra = append(o.Extra, "--samples", strconv.Itoa(rate.Samples))
	}
	for _, g := range t.guests {
		o.Extra = append(o.Extra, "-p", strconv.Itoa(g.pid()))
	}
	return o
}

// newTurns makes turns without guests.
func newTurns(m meter, engine string) *turns {
	return &turns{m: m, engine: engine, socket: filepath.Join(m.dir, "guest.sock")}
}
