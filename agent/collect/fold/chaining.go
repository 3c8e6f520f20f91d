package fold

import (
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

// A Chaining is the known contexts of one process whose stacks are not all walked: CallerChaining
// of Inoue and Nakatani (OOPSLA 2009, section 6). Walks teach it as they arrive. The links of a
// window are placed when it closes, with everything learned by then. It belongs to the State that
// has the process.
type Chaining struct {
	Attachment uint32 // serial of the VM whose frames these are, 0 if there is none
	Slot       uint32 // slot of its rate on the kernel side
	Chain      cct.Chain[guest.RawFrame, uint32]
	WalkRate   *WalkRate
	generation uint64 // generation of Chain at the last call of kernelRate

	walk, guess []activation // scratch
}

// chainedContexts bounds the contexts of one process, and likewise its links.
const chainedContexts = 1 << 17

// newChaining returns a Chaining without contexts. Several may share one WalkRate.
func newChaining(attachment, slot uint32, p *WalkRate) *Chaining {
	c := &Chaining{Attachment: attachment, Slot: slot, WalkRate: p}
	c.Chain.Limit, c.Chain.LinkLimit, c.Chain.Marker = chainedContexts, chainedContexts, isUnreached
	return c
}

// take learns from a sample with depths. It reports whether kernelRate has changed.
func (c *Chaining) take(t *Sample) (changed bool) {
	if t.link = t.Flags&bpf.SampleLink != 0; t.link {
		return c.learnLink(t.Sample, t.User())
	}
	return c.learn(t.Sample, t.User())
}

// takeCall learns caller and callee from an observed call. It reports whether kernelRate has
// changed.
func (c *Chaining) takeCall(callee, caller guest.RawFrame, calleeDepth, callerDepth uint32) (changed bool) {
	c.Chain.Call(chainLink{Leaf: activate(callee, calleeDepth), Caller: activate(caller, callerDepth)}, 1)
	return c.forgot()
}

// kernelRate returns how often stacks should be walked, and whether something was forgotten since
// the last call.
func (c *Chaining) kernelRate() (rate bpf.ChainRate, forgot bool) {
	forgot = c.forgot()
	c.generation = c.Chain.Generation()
	return bpf.ChainRate{Every: c.WalkRate.Every, Generation: uint32(c.generation)}, forgot
}

// learn learns from a walk of a stack. It reports whether kernelRate has changed.
func (c *Chaining) learn(s *bpf.Sample, user []guest.RawFrame) (changed bool) {
	walk, ok := activations(c.walk[:0], user, s.Depths)
	if c.walk = walk; !ok {
		c.walk = walk[:0] // nothing was learned
		return false
	}
	if s.Flags&bpf.SampleDrawn != 0 {
		// This walk was drawn at random among samples with a known link: so its context is as
		// predictable as those of links.
		changed = c.WalkRate.drawn(sameCallers(c.likeliest(linkOf(walk)), walk, threeLevels, sameCall), len(walk))
	}
	c.Chain.Proof = c.WalkRate.Proof
	c.Chain.Walk(walk, 1)
	return c.forgot() || changed
}

// unsettled reports whether the link of the last walk has one context (steady), and whether the
// kernel side lacks that information. If users fixed the share of walked samples, the kernel side
// needs no such information.
func (c *Chaining) unsettled(s *bpf.Sample) (steady, unsettled bool) {
	if s.LinkTag == 0 || c.WalkRate.fixed || len(c.walk) < 2 {
		return true, false
	}
	steady = c.Chain.Steady(linkOf(c.walk))
	return steady, steady != (s.LinkTag&bpf.LinkSteady != 0)
}

// forgot reports whether the chain has forgotten contexts that the kernel side considers known.
func (c *Chaining) forgot() bool { return c.Chain.Generation() != c.generation }

// learnLink learns from a sample whose stack was not walked: caller and callee, for contexts that
// no walk has shown. It returns the same as learn.
func (c *Chaining) learnLink(s *bpf.Sample, user []guest.RawFrame) (changed bool) {
	pair, ok := activations(c.walk[:0], user[:min(len(user), 2)], s.Depths)
	c.walk = pair
	if ok && len(pair) > 1 {
		c.Chain.Call(linkOf(pair), 1)
	}
	return c.forgot()
}

// likeliest returns the likeliest context of a link; it is valid until the next call.
func (c *Chaining) likeliest(l chainLink) []activation {
	to := cct.Candidate[guest.RawFrame, uint32]{}
	if p := c.Chain.Place(l); len(p.Candidates) > 0 {
		to = p.Candidates[0]
	}
	c.guess = c.context(c.guess[:0], l, to)
	return c.guess
}

// context appends a context of a link. If it is not known to its outermost frame, it ends with a
// marker.
func (c *Chaining) context(buf []activation, l chainLink, to cct.Candidate[guest.RawFrame, uint32]) []activation {
	buf = c.Chain.Stack(buf, l, to)
	if to.Context == cct.Root {
		buf = append(buf, unreached(bpf.EndKnown))
	}
	return buf
}

const threeLevels = 3

// Agreement returns for how many callers all possible contexts of a link agree, with a key of
// Thread.Links: by {method, depth} of the leaf, and by the complete link.
func (c *Chaining) Agreement(key []guest.RawFrame) (byDepth, bySite cct.Agreement) {
	link, ok := activations(nil, key[:len(key)-1], depthsIn(key[len(key)-1]))
	switch {
	case !ok: // The walk ended at once.
	case len(link) == 1: // a stack of one frame
		byDepth.Whole, bySite.Whole = true, true
	default:
		l := linkOf(link)
		_, byDepth = c.Chain.ByDepth(l.Leaf)
		bySite = c.Chain.Place(l).Callers
	}
	return byDepth, bySite
}

// A WalkRate decides how many samples with a known link are walked all the same, and when a link
// counts as known.
type WalkRate struct {
	Every        uint32 // one in this many
	Proof        uint8  // walks that must agree with a link's first one: see cct.Chain
	fixed        bool   // users set Every
	Draws, Right int    // walks drawn since Every was last adapted, and those of them that were predicted correctly
	frames       int    // frames of the drawn walks
}

const (
	// firstEvery is the initial Every when it adapts.
	firstEvery = 8
	minEvery   = 2
	// Walks of many frames are drawn less often, so that all walks together take about the same
	// time whatever the depth.
	maxEvery, maxEveryPerFrame = 128, 4
	firstProof                 = 1
	maxProof                   = 31
	// drawsToJudge is the number of draws after which Every is adapted.
	drawsToJudge = 50
	// Of a hundred draws, this many must be predicted correctly for three levels to walk less
	// often, or not to walk more often.
	goodGuesses, badGuesses = 97, 94
)

// newWalkRate returns a fixed rate, or one that adapts if every is 0.
func newWalkRate(every uint32) *WalkRate {
	if every != 0 {
		return &WalkRate{Every: every, fixed: true}
	}
	return &WalkRate{Every: firstEvery, Proof: firstProof}
}

// drawn records whether a drawn walk with that many frames was predicted correctly. It reports
// whether Every has changed.
func (p *WalkRate) drawn(right bool, frames int) bool {
	p.Draws++
	p.frames += frames
	if right {
		p.Right++
	}
	if p.fixed || p.Draws < drawsToJudge {
		return false
	}
	percent, before := 100*p.Right/p.Draws, p.Every
	switch {
	case percent >= goodGuesses:
		most := max(maxEvery, maxEveryPerFrame*p.frames/p.Draws)
		p.Every, p.Proof = min(2*p.Every, uint32(most)), p.Proof/2
	case percent < badGuesses:
		p.Every, p.Proof = max(p.Every/2, minEvery), min(2*p.Proof+1, maxProof)
	}
	p.Draws, p.Right, p.frames = 0, 0, 0
	return p.Every != before
}

// An activation is a raw frame in the form of cct.Chain: the method, which is the frame without the
// place in it; the place; and its depth on the stack.
type activation = cct.Activation[guest.RawFrame, uint32]

type chainLink = cct.Link[guest.RawFrame, uint32]

// activate splits a frame. The code of stubs and native frames is not known: a leaf keeps only its
// kind, as on the kernel side, and a return address is a method of its own. Such frames have no
// epoch, because the kernel side, which decides what is known, does not know theirs.
func activate(r guest.RawFrame, depth uint32) activation {
	leaf := r.Kind == guest.RawExact
	a := activation{Method: r, Depth: depth}
	a.Method.Kind = guest.RawReturn
	switch r.Frame.Kind() {
	case bpf.FrameJIT:
		a.Method.Frame, a.Site = r.Frame&^0xffffffff, uint32(r.Frame)
	case bpf.FrameInterpreted:
		a.Method.Frame, a.Site = r.Frame&^0xffff, uint32(r.Frame)&0xffff
	default:
		a.Method.Epoch = 0
		if leaf {
			a.Method.Frame = bpf.Frame(r.Frame.Kind()) << 60
		}
	}
	if leaf {
		a.Site = 0
	}
	return a
}

// callerFrame returns the frame of an activation that is not the leaf.
func callerFrame(a activation) guest.RawFrame {
	r := a.Method
	r.Frame |= bpf.Frame(a.Site)
	return r
}

// unreached stands for everything above the outermost frame of a walk that ended early.
func unreached(end bpf.WalkEnd) activation {
	return activation{Method: guest.RawFrame{Kind: guest.RawNothing, End: end}}
}

func isUnreached(r guest.RawFrame) bool { return r.Kind == guest.RawNothing }

// activations appends the user frames of a stack, innermost first, as far as their depths are
// known. It reports whether a chain may learn them: frames of a VM that has ended must not be
// learned.
func activations(buf []activation, user []guest.RawFrame, depths []uint32) ([]activation, bool) {
	for i, r := range user {
		if r.Kind == guest.RawStale || r.Kind == guest.RawNothing {
			return buf, false
		}
		end := r.End
		r.End = 0
		var depth uint32
		if i < len(depths) {
			depth = depths[i]
		}
		buf = append(buf, activate(r, depth))
		if end.Truncated() {
			buf = append(buf, unreached(end))
		}
	}
	return buf, len(buf) > 0
}

// callers appends the frames of activations that are not leaves. The marker above the outermost one
// becomes the end of the last frame.
func callers(buf []guest.RawFrame, above []activation) []guest.RawFrame {
	for _, a := range above {
		if isUnreached(a.Method) {
			if len(buf) > 0 {
				buf[len(buf)-1].End = a.Method.End
			}
			break
		}
		buf = append(buf, callerFrame(a))
	}
	return buf
}

// linkOf returns the link at the top of a stack.
func linkOf(stack []activation) chainLink {
	l := chainLink{Leaf: stack[0]}
	if len(stack) > 1 && !isUnreached(stack[1].Method) {
		l.Caller = stack[1]
	}
	return l
}
