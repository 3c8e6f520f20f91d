package agent

import (
	"github.com/vmprof-agent/vmprof-agent/agent/fold"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// chainRates are how often stacks are walked whose link is known, as the kernel side was told. Processes without a VM
// share one rate.
type chainRates struct {
	kernel    interface{ Put(key, value any) error }  // bpf.Objects.ChainRates
	setSteady func(linkTag uint64, steady bool) error // bpf.Objects.SetSteady
	native    *fold.WalkRate
	// How often processes without a VM were asked for their links again.
	generation uint32
}

// newChainRates tells the kernel side the first rate of processes without a VM.
func newChainRates(a *Agent, kernel interface{ Put(key, value any) error }, setSteady func(uint64, bool) error) chainRates {
	r := chainRates{kernel: kernel, setSteady: setSteady, native: fold.NewWalkRate(a.opt.WalkEvery)}
	r.tell(a, bpf.MaxAttached, bpf.ChainRate{Every: r.native.Every})
	return r
}

func (r *chainRates) tell(a *Agent, slot uint32, rate bpf.ChainRate) {
	if err := r.kernel.Put(slot, rate); err != nil {
		a.log.Warn("cannot set how often stacks are walked", "err", err)
	}
}

// setChainRate tells the kernel side how often to walk, and what was forgotten.
func (a *Agent) setChainRate(c *fold.Chaining) {
	rate, forgot := c.KernelRate()
	if c.Slot == bpf.MaxAttached {
		if forgot { // whatever one of them has forgotten, all are asked for again
			a.rates.generation++
		}
		rate.Generation = a.rates.generation
	}
	a.rates.tell(a, c.Slot, rate)
}

// settle tells the kernel side to walk every sample with a link of several contexts, or to do so no longer. Where links that
// are not known are left, so are these.
func (r *chainRates) settle(a *Agent, c *fold.Chaining, s *bpf.Sample) {
	steady, unsettled := c.Unsettled(s)
	if !unsettled || a.opt.LeaveUnknown {
		return
	}
	if err := r.setSteady(s.LinkTag, steady); err != nil {
		a.log.Warn("a link with several contexts is not always walked", "err", err)
	}
}
