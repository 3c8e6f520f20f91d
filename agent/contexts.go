package agent

import (
	"github.com/vmprof-agent/vmprof-agent/agent/calls/listener"
	"github.com/vmprof-agent/vmprof-agent/agent/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/target"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// take completes a sample as far as that can be done at once, and learns from it; mu is held.
func (a *Agent) take(p *fold.Process, s *bpf.Sample, code *target.JITCode) fold.Sample {
	a.stack = target.AppendStack(a.stack[:0], s, p.Attachment.Load())
	t := fold.Sample{Sample: s, Stack: a.stack}
	switch a.opt.Contexts {
	case profile.ContextChain:
		user := t.User()
		if s.Flags&bpf.SampleDepths == 0 || len(user) == 0 {
			break // a kernel thread, or 32-bit code
		}
		c := a.chainingOf(p)
		a.makeRoom(p, len(user)+1)
		if c.Take(&t) {
			a.setChainRate(c)
		}
		a.rates.settle(a, c, s)
	case profile.ContextPartial:
		a.splicing.Complete(&t, a.opt.CheckContexts)
		a.stack = t.Stack
	}
	code.Mark(t.Stack)
	return t
}

// teachCall takes a call that an engine caught: unlike the link of a sample, it tells how often it is made; mu is held.
func (a *Agent) teachCall(p *fold.Process, callee, caller target.RawFrame, calleeDepth, callerDepth uint32) {
	if a.opt.Contexts != profile.ContextChain || calleeDepth == 0 || callerDepth == 0 {
		return
	}
	c := a.chainingOf(p)
	a.makeRoom(p, 2)
	if c.TakeCall(callee, caller, calleeDepth, callerDepth) {
		a.setChainRate(c)
	}
}

// teachCalls takes what a window heard of code of p's VM.
func (a *Agent) teachCalls(p *fold.Process, hits []listener.Hit, classEpoch uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, h := range hits {
		a.teachCall(p, target.RawFrame{Frame: h.Callee, Kind: target.RawExact}, callSite(h.Caller, classEpoch), h.CalleeDepth, h.CallerDepth)
	}
}

// placeWaiting gives all samples of p that wait their contexts, before what is known of these is forgotten; mu is held.
func (a *Agent) placeWaiting(p *fold.Process) {
	for w := range a.windows {
		a.newPlacing(p).Place(w.processes[p])
	}
}

// makeRoom forgets all contexts of p if those of a stack of so many frames do not fit; mu is held.
func (a *Agent) makeRoom(p *fold.Process, frames int) {
	if c := p.Chaining; !c.Chain.Room(frames) {
		a.placeWaiting(p)
		c.Chain.Purge()
	}
}

// chainingOf returns what is known of p's contexts; mu is held.
func (a *Agent) chainingOf(p *fold.Process) *fold.Chaining {
	serial := p.Attachment.Load()
	if p.Chaining != nil && p.Chaining.Attachment == serial {
		return p.Chaining
	}
	if p.Chaining != nil { // what another VM needed says nothing of this one
		a.placeWaiting(p)
	}
	if serial == 0 {
		p.Chaining = fold.NewChaining(0, bpf.MaxAttached, a.rates.native)
	} else {
		p.Chaining = fold.NewChaining(serial, p.Slot.Load(), fold.NewWalkRate(a.opt.WalkEvery))
		a.setChainRate(p.Chaining)
	}
	return p.Chaining
}

// fold.NewPlacing is of p's samples; mu is held.
func (a *Agent) newPlacing(p *fold.Process) *fold.Placing {
	return fold.NewPlacing(p.Chaining, p.Code.Load(), a.opt.CheckContexts, func(stack []target.RawFrame) {
		if p.Want(stack, p.ClassEpoch, &a.nameCount) {
			a.resolver.Submit(p.Process)
		}
	})
}

// place gives the samples of a window that is closed their contexts. mu is not held, and not for long at a time: to place
// one link takes up to some milliseconds, and the ring must not run full meanwhile.
func (a *Agent) place(w *Window) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for p, threads := range w.processes {
		a.resolver.Attempt(target.StageWindow, p.Process, func() {
			pl := a.newPlacing(p)
			pl.Pause = func() {
				a.mu.Unlock()
				a.mu.Lock()
			}
			pl.Place(threads)
		})
	}
}
