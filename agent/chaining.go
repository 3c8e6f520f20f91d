package agent

import (
	"github.com/vmprof-agent/vmprof-agent/agent/calls/listener"
	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/target"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

// A chaining is what is known of the contexts of one process where stacks are not all walked: CallerChaining of Inoue and
// Nakatani (OOPSLA 2009, section 6). Walks teach it as they arrive; the links of a window are placed when it closes, with
// all that is known by then. The drainer has it, or whoever holds agent.mu.
type chaining struct {
	attachment uint32 // of the VM whose frames these are, 0 if there is none
	slot       uint32 // of its rate on the kernel side
	chain      cct.Chain[target.RawFrame, uint32]
	pace       *pace
	generation uint64 // of chain, as the kernel side was told

	walk, guess []activation // scratch
}

// chainedContexts bounds the contexts, and the links, of one process.
const chainedContexts = 1 << 17

func newChaining(attachment, slot uint32, p *pace) *chaining {
	c := &chaining{attachment: attachment, slot: slot, pace: p}
	c.chain.Limit, c.chain.LinkLimit, c.chain.Marker = chainedContexts, chainedContexts, isUnreached
	return c
}

// learn takes a walk of a stack. It tells whether the kernel side must be told of another rate or generation.
func (c *chaining) learn(s *bpf.Sample, user []target.RawFrame) (changed bool) {
	walk, ok := activations(c.walk[:0], user, s.Depths)
	if c.walk = walk; !ok {
		c.walk = walk[:0] // nothing was learned
		return false
	}
	if s.Flags&bpf.SampleDrawn != 0 {
		// Nobody chose this sample: that its context would have been found is as likely as for those with a link.
		changed = c.pace.drawn(sameCallers(c.likeliest(linkOf(walk)), walk, threeLevels, sameCall), len(walk))
	}
	c.chain.Proof = c.pace.proof
	c.chain.Walk(walk, 1)
	return c.forgot() || changed
}

// unsettled tells whether the link of the walk that was learned last is steady, and whether the kernel side does not know
// that. Where users have said how many samples to walk, no others are.
func (c *chaining) unsettled(s *bpf.Sample) (steady, unsettled bool) {
	if s.LinkTag == 0 || c.pace.fixed || len(c.walk) < 2 {
		return true, false
	}
	steady = c.chain.Steady(linkOf(c.walk))
	return steady, steady != (s.LinkTag&bpf.LinkSteady != 0)
}

// forgot tells whether the chain has forgotten what the kernel side takes for known.
func (c *chaining) forgot() bool { return c.chain.Generation() != c.generation }

// learnLink takes the link of a sample whose stack was not walked: who called whom, for contexts that no walk has shown.
// It tells what learn does.
func (c *chaining) learnLink(s *bpf.Sample, user []target.RawFrame) (changed bool) {
	pair, ok := activations(c.walk[:0], user[:min(len(user), 2)], s.Depths)
	c.walk = pair
	if ok && len(pair) > 1 {
		c.chain.Call(linkOf(pair), 1)
	}
	return c.forgot()
}

// teachCall takes a call that an engine caught: unlike the link of a sample, it tells how often it is made; mu is held.
func (a *Agent) teachCall(p *process, callee, caller target.RawFrame, calleeDepth, callerDepth uint32) {
	if a.opt.Contexts != profile.ContextChain || calleeDepth == 0 || callerDepth == 0 {
		return
	}
	c := a.chainingOf(p)
	a.makeRoom(p, 2)
	c.chain.Call(chainLink{Leaf: activate(callee, calleeDepth), Caller: activate(caller, callerDepth)}, 1)
	if c.forgot() {
		a.setChainRate(c)
	}
}

// teachCalls takes what a window heard of code of p's VM.
func (a *Agent) teachCalls(p *process, hits []listener.Hit, classEpoch uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, h := range hits {
		a.teachCall(p, target.RawFrame{Frame: h.Callee, Kind: target.RawExact}, callSite(h.Caller, classEpoch), h.CalleeDepth, h.CallerDepth)
	}
}

// likeliest returns the likeliest context of a link; it is good until the next call.
func (c *chaining) likeliest(l chainLink) []activation {
	to := cct.Candidate[target.RawFrame, uint32]{}
	if p := c.chain.Place(l); len(p.Candidates) > 0 {
		to = p.Candidates[0]
	}
	c.guess = c.context(c.guess[:0], l, to)
	return c.guess
}

// context appends a context of a link. Where it is not known to its outermost frame, a marker says so.
func (c *chaining) context(buf []activation, l chainLink, to cct.Candidate[target.RawFrame, uint32]) []activation {
	buf = c.chain.Stack(buf, l, to)
	if to.Context == cct.Root {
		buf = append(buf, unreached(bpf.EndKnown))
	}
	return buf
}

const threeLevels = 3

// placeWaiting gives all samples of p that wait their contexts, before what is known of these is forgotten; mu is held.
func (a *Agent) placeWaiting(p *process) {
	for w := range a.windows {
		a.newPlacing(p).place(w.processes[p])
	}
}

// makeRoom forgets all contexts of p if those of a stack of so many frames do not fit; mu is held.
func (a *Agent) makeRoom(p *process, frames int) {
	if c := p.chaining; !c.chain.Room(frames) {
		a.placeWaiting(p)
		c.chain.Purge()
	}
}

// chainingOf returns what is known of p's contexts; mu is held.
func (a *Agent) chainingOf(p *process) *chaining {
	serial := p.Attachment.Load()
	if p.chaining != nil && p.chaining.attachment == serial {
		return p.chaining
	}
	if p.chaining != nil { // what another VM needed says nothing of this one
		a.placeWaiting(p)
	}
	if serial == 0 {
		p.chaining = newChaining(0, bpf.MaxAttached, a.rates.native)
	} else {
		p.chaining = newChaining(serial, p.Slot.Load(), newPace(a.opt.WalkEvery))
		a.setChainRate(p.chaining)
	}
	return p.chaining
}
