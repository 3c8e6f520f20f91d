package growth

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"golang.org/x/sys/unix"
)

// Rate is how many samples a second of CPU time Watch takes.
const Rate = 999

// A Watched is what an agent used while it recorded processes. Garbage collection is part of it.
type Watched struct {
	Start   time.Duration // CPU time until it samples: loading programs, finding VMs
	First   Phase         // cost of a sample in the first window, which names what is running, and is closed
	Then    Phase         // cost of a sample in the second window
	Close   time.Duration // CPU time of closing that
	Heap    uint64        // bytes that live in the agent's heap at its end
	Sampled int           // processes with samples in the second window
}

// Watch has an agent in this process record others, for two windows of that length each, once it is
// attached to that many VMs.
func Watch(ctx context.Context, pids []int, vms int, length time.Duration) (w Watched, err error) {
	before := live()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	began := cpuTime(unix.RUSAGE_SELF)
	a, err := agent.New(ctx, agent.Options{Frequency: Rate, PIDs: pids})
	if err != nil {
		return w, err
	}
	w.Start = cpuTime(unix.RUSAGE_SELF) - began
	ran := make(chan error, 1)
	go func() { ran <- a.Run(ctx) }()
	defer func() {
		stop()
		err = errors.Join(err, <-ran, a.Close())
	}()
	if err := wait(ctx, "attach to VMs", func() (bool, error) { return a.Guests() >= vms, nil }); err != nil {
		return w, err
	}
	first, err := measure(0, false, func() error {
		p, err := a.Collect(ctx, length, nil)
		if err == nil {
			w.First.Of = int(p.Counts.Folded)
		}
		return err
	})
	if err != nil {
		return w, err
	}
	w.First.CPU, w.First.Allocs = first.CPU, first.Allocs
	var p *profile.Profile
	window := a.Open(nil)
	then, err := measure(0, false, func() error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(length):
			return nil
		}
	})
	if err != nil {
		return w, err
	}
	w.Heap = max(live(), before) - before
	closing, err := measure(0, false, func() (err error) {
		p, err = window.Close(ctx)
		return err
	})
	if err != nil {
		return w, err
	}
	w.Then = Phase{Of: int(p.Counts.Folded), CPU: then.CPU, Allocs: then.Allocs}
	w.Close = closing.CPU
	for _, of := range p.Processes {
		if slices.ContainsFunc(of.Threads, func(t *profile.Thread) bool { return t.Tree.Total() > 0 }) {
			w.Sampled++
		}
	}
	return w, nil
}
