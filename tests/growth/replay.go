// Package growth measures what the agent itself uses, as what it records grows: with an agent in
// this process, which receives generated records (Replay), or records processes that run (Watch).
//
//	cost, err := growth.Replay(ctx, growth.Load{Samples: 1e6, Stacks: 10_000, Methods: 1_000, CPUs: 16})
package growth

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"golang.org/x/sys/unix"
)

// A Load is what a replay has an agent record.
type Load struct {
	Samples int // samples in addition to one of each stack
	Stacks  int // distinct ones
	Methods int // compiled ones, of one process
	CPUs    int // CPUs that tick in turn, each in a thread of its own
}

// A Cost is what the agent used for a replay. CPU time and allocations are those of the whole
// process, without the writer of the records.
type Cost struct {
	Name  Phase  // cost of a method, when it is first seen: reading the map of methods is included
	New   Phase  // cost of the first sample of a stack
	Known Phase  // cost of a sample of a stack that the window has
	Close Phase  // cost of a context in the window, when that is closed
	Heap  uint64 // bytes that live in the agent's heap when the window has everything
}

// A Phase is the cost of one of many.
type Phase struct {
	Of     int
	CPU    time.Duration // sum over all
	Allocs uint64        // sum over all
}

// Each returns the CPU time of one, in ns.
func (p Phase) Each() float64 { return float64(p.CPU) / float64(max(p.Of, 1)) }

// AllocsEach returns how many allocations one takes.
func (p Phase) AllocsEach() float64 { return float64(p.Allocs) / float64(max(p.Of, 1)) }

// Replay has an agent in this process receive generated records, by way of its ring. It samples
// nothing itself.
func Replay(ctx context.Context, l Load) (Cost, error) {
	runtime.LockOSThread() // The thread's CPU time is the writer's.
	defer runtime.UnlockOSThread()
	before := live()
	c, err := replayWith(ctx, l, before)
	// Timers may keep what the agent had for a moment, which would count for the next one.
	const room = 1 << 20
	for range 50 {
		if live() < before+room {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	return c, err
}

// replayWith is Replay; before is how much of the heap is in use without an agent.
func replayWith(ctx context.Context, l Load, before uint64) (c Cost, err error) {
	p, err := newProgram(l.Methods)
	if err != nil {
		return c, err
	}
	defer p.close()
	s := newStacks(p, l.Stacks, l.CPUs)

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	a, err := agent.New(ctx, agent.Options{Filter: true})
	if err != nil {
		return c, err
	}
	ran := make(chan error, 1)
	go func() { ran <- a.Run(ctx) }()
	defer func() {
		stop()
		err = errors.Join(err, <-ran, a.Close())
	}()
	w, err := newWriter(s.recordSize)
	if err != nil {
		return c, err
	}
	defer w.close()
	r := replay{agent: a, writer: w, stacks: s}

	window := a.Open(nil)
	if c.Name, err = measure(l.Methods, true, func() error {
		if err := r.write(ctx, 1, s.cover); err != nil { // finds the map
			return err
		}
		if err := r.named(ctx, 1); err != nil {
			return err
		}
		if err := r.write(ctx, s.covers(), s.cover); err != nil {
			return err
		}
		return r.named(ctx, l.Methods)
	}); err != nil {
		return c, err
	}
	for _, phase := range []struct {
		of *Phase
		n  int
	}{{&c.New, l.Stacks}, {&c.Known, l.Samples}} {
		if *phase.of, err = measure(phase.n, true, func() error {
			return r.write(ctx, phase.n,
				s.sample)
		}); err != nil {
			return c, err
		}
	}
	if err := r.named(ctx, l.Methods); err != nil {
		return c, err
	}
	c.Heap = max(live(), before) - before
	var closed *profile.Profile
	if c.Close, err = measure(0, false, func() (err error) {
		closed, err = window.Close(ctx)
		return err
	}); err != nil {
		return c, err
	}
	c.Close.Of = contexts(closed)
	return c, r.check(closed)
}

// A replay writes records to an agent.
type replay struct {
	agent  *agent.Agent
	writer *writer
	stacks *stacks
	sent   uint64
}

// write writes n records, and returns when the agent has received them.
func (r *replay) write(ctx context.Context, n int, record func(n int, now time.Duration) []byte) error {
	var now time.Duration
	for i := range n {
		if i%chunk == 0 {
			now = proc.Monotonic()
		}
		if err := r.writer.add(record(i, now)); err != nil {
			return err
		}
	}
	r.sent += uint64(n)
	if err := r.writer.flush(); err != nil {
		return err
	}
	return wait(ctx, "receive records", func() (bool, error) {
		counts, err := r.agent.Counts()
		return counts.Delivered >= r.sent, err
	})
}

// named returns when the agent has named so many frames.
func (r *replay) named(ctx context.Context, n int) error {
	return wait(ctx, "name frames", func() (bool, error) { return r.agent.Stats().Frames >= uint64(n), nil })
}

// wait returns when the agent has done something.
func wait(ctx context.Context, what string, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the agent to %s: %w", what, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// contexts is how many a profile has.
func contexts(p *profile.Profile) (n int) {
	for _, of := range p.Processes {
		for _, t := range of.Threads {
			n += t.Tree.Len()
		}
	}
	return n
}

// check fails if a profile lacks anything that was replayed.
func (r *replay) check(p *profile.Profile) error {
	if p.Counts.Folded != r.sent || p.Counts.Unknown > 0 {
		return fmt.Errorf("%d samples were replayed, and %d are in the profile; %d frames have no names", r.sent,
			p.Counts.Folded, p.Counts.Unknown)
	}
	return nil
}

// measure returns what this process used for n of something. The CPU time of the calling thread,
// which is locked, does not count if it writes records.
func measure(n int, writes bool, do func() error) (Phase, error) {
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	all, own := cpuTime(unix.RUSAGE_SELF), cpuTime(unix.RUSAGE_THREAD)
	if err := do(); err != nil {
		return Phase{}, err
	}
	all, own = cpuTime(unix.RUSAGE_SELF)-all, cpuTime(unix.RUSAGE_THREAD)-own
	runtime.ReadMemStats(&after)
	if writes {
		all -= own
	}
	return Phase{Of: n, CPU: all, Allocs: after.Mallocs - before.Mallocs}, nil
}

// live returns how many bytes of the heap are in use.
func live() uint64 {
	runtime.GC()
	runtime.GC() // what the first one finalized
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// cpuTime returns the CPU time that this process or thread has used.
func cpuTime(who int) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(who, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
