package agent

import (
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

// take learns from a sample with depths. It reports what learn does.
func (c *chaining) take(t *taken) (changed bool) {
	if t.link = t.Flags&bpf.SampleLink != 0; t.link {
		return c.learnLink(t.Sample, t.user())
	}
	return c.learn(t.Sample, t.user())
}

// takeCall learns who called whom from a call that was observed. It reports what learn does.
func (c *chaining) takeCall(callee, caller target.RawFrame, calleeDepth, callerDepth uint32) (changed bool) {
	c.chain.Call(chainLink{Leaf: activate(callee, calleeDepth), Caller: activate(caller, callerDepth)}, 1)
	return c.forgot()
}

// rate is how often stacks are to be walked by now, and whether something was forgotten since the last call.
func (c *chaining) rate() (rate bpf.ChainRate, forgot bool) {
	forgot = c.forgot()
	c.generation = c.chain.Generation()
	return bpf.ChainRate{Every: c.pace.every, Generation: uint32(c.generation)}, forgot
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

// agreement tells in how much of the callers all contexts agree that a link, as rawThread.links has it, may belong to: by
// {method, depth} and by all that the link has.
func (c *chaining) agreement(key []target.RawFrame) (byDepth, bySite cct.Agreement) {
	link, ok := activations(nil, key[:len(key)-1], depthsIn(key[len(key)-1]))
	switch {
	case !ok: // of a walk that ended at once
	case len(link) == 1: // a stack of one frame
		byDepth.Whole, bySite.Whole = true, true
	default:
		l := linkOf(link)
		_, byDepth = c.chain.ByDepth(l.Leaf)
		bySite = c.chain.Place(l).Callers
	}
	return byDepth, bySite
}
