package branch

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/budget"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// A source is the CPU feature that calls are sampled from.
type source uint8

const (
	stacks  source = iota + 1 // branch records
	retired                   // an event at every Nth call
)

// MinPeriod bounds how often retired calls are sampled: at 600 million calls a second, 6,000 times
// a second.
const MinPeriod = 100_000

// An Engine samples calls of all selected processes on all CPUs. It implements calls.Engine.
type Engine struct {
	objects bpf.BranchObjects
	source  source
	event   attach.RawEvent // retired

	mu    sync.Mutex
	ticks *attach.Ticks
	rate  profile.Rate
}

// Name implements calls.Engine.
func (e *Engine) Name() string { return calls.Branch }

// Describe returns, in words, what calls are sampled from.
func (e *Engine) Describe() string {
	if e.source == stacks {
		return fmt.Sprintf("the CPU's branch records, up to %d calls at a time", bpf.MaxBranches)
	}
	return "an event at every Nth call that the CPU retires"
}

// Tune changes the rate. With branch records, every tick records the latest Samples calls, from at
// most MaxBranches records; Stride is ignored. With retired calls, only Stride matters, at least
// MinPeriod: the number of calls from one sample to the next. Hz 0 pauses the engine.
func (e *Engine) Tune(r profile.Rate) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	r = e.source.limit(r)
	if err := e.objects.BranchRates.Put(uint32(0), &bpf.BranchRate{Samples: uint32(r.Samples)}); err != nil {
		return fmt.Errorf("tune branch records: %w", err)
	}
	if r.Hz == 0 {
		e.rate = r
		return e.ticks.Stop()
	}
	if r.Hz != e.rate.Hz || r.Stride != e.rate.Stride {
		t, err := e.open(r)
		if err != nil {
			return err
		}
		e.ticks.Close()
		e.ticks = t
	}
	e.rate = r
	return e.ticks.Start()
}

func (s source) limit(r profile.Rate) profile.Rate {
	r.Hz = min(max(r.Hz, 0), attach.MaxBranchHz)
	r.Samples = min(max(r.Samples, 1), bpf.MaxBranches)
	if s == retired {
		r.Stride = max(r.Stride, MinPeriod)
	} else {
		r.Stride = 1
	}
	return r
}

func (e *Engine) open(r profile.Rate) (*attach.Ticks, error) {
	if e.source == stacks {
		return attach.NewBranchTicks(e.objects.BranchStack, r.Hz)
	}
	return attach.NewRetiredTicks(e.objects.BranchRetired, e.event, uint64(r.Stride))
}

// Refresh follows CPUs that came online or went offline.
func (e *Engine) Refresh() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ticks.Refresh()
}

// Cost implements calls.Engine. HitTime covers the BPF programs; the CPU's own cost of raising an
// event comes on top.
func (e *Engine) Cost() budget.Cost {
	var perCPU []bpf.BranchCost
	if err := e.objects.BranchCosts.Lookup(uint32(0), &perCPU); err != nil {
		return budget.Cost{} // the map exists until Close
	}
	return cost(perCPU)
}

// Notes describe what the samples lacked so far, one sentence each.
func (e *Engine) Notes() []string {
	var perCPU []bpf.BranchCost
	if err := e.objects.BranchCosts.Lookup(uint32(0), &perCPU); err != nil {
		return nil // the map exists until Close
	}
	return notes(perCPU)
}

func notes(perCPU []bpf.BranchCost) (notes []string) {
	var sum bpf.BranchCost
	for _, p := range perCPU {
		sum.Skewed += p.Skewed
		sum.Stubs += p.Stubs
		sum.Untyped += p.Untyped
	}
	for _, lack := range []struct {
		n           uint64
		thing, text string
	}{
		{sum.Skewed, "call", "missing, because the CPU raised the event too late"},
		{sum.Stubs, "virtual or interface call", "without a recorded callee: shown as calls of [vtable stub]"},
		{sum.Untyped, "record", "missing, because the kernel did not report whether it was a call or a jump"},
	} {
		if lack.n > 0 {
			notes = append(notes, "branch: "+stored.Plural(int(lack.n), lack.thing)+" "+lack.text)
		}
	}
	return notes
}

func cost(perCPU []bpf.BranchCost) (c budget.Cost) {
	var ns uint64
	for _, p := range perCPU {
		c.Hits += p.Samples
		ns += p.Ns
	}
	if c.Hits > 0 {
		c.HitTime = time.Duration(ns / c.Hits)
	}
	return c
}

// Close implements calls.Engine.
func (e *Engine) Close() error {
	return errors.Join(e.ticks.Close(), e.objects.Close())
}
