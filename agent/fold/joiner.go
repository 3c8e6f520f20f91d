package fold

import (
	"log/slog"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/target"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// JoinOptions say how a Joiner finds contexts, and what it needs of others.
type JoinOptions struct {
	Contexts     profile.ContextMode
	Check        bool   // samples have their whole stacks: count how many contexts are right
	WalkEvery    uint32 // ContextChain: walk one in so many samples whose link is known; 0 adapts
	LeaveUnknown bool   // ContextChain: walk samples whose link is unknown no more often than others
	Log          *slog.Logger

	// The kernel side, for ContextChain.
	Rates     interface{ Put(key, value any) error }  // bpf.Objects.ChainRates
	SetSteady func(linkTag uint64, steady bool) error // bpf.Objects.SetSteady

	// PlaceWaiting gives all samples of a process that wait their contexts, before what is known of these is forgotten.
	PlaceWaiting func(p *Process)
	// Want is called with each stack that samples of a process were given.
	Want func(p *Process, stack []target.RawFrame)
}

// A Joiner joins samples with what is known of their contexts, and sets how often the kernel side walks stacks whose link is known.
// It belongs to a State.
type Joiner struct {
	opt      JoinOptions
	stack    []target.RawFrame // scratch
	splicing splicing          // of partial walks

	// Processes without a VM share one rate.
	native     *WalkRate
	generation uint32 // how often they were asked for their links again
}

// newJoiner makes a Joiner. Where contexts are chained, it sets the first rate of processes without a VM.
func newJoiner(opt JoinOptions) *Joiner {
	j := &Joiner{opt: opt}
	if opt.Contexts == profile.ContextChain {
		j.native = newWalkRate(opt.WalkEvery)
		j.set(bpf.MaxAttached, bpf.ChainRate{Every: j.native.Every})
	}
	return j
}

// Join completes a sample as far as that can be done at once, and learns from it. The code is that which a map of the process names.
// The result is valid until the next call.
func (j *Joiner) Join(p *Process, s *bpf.Sample, code *target.JITCode) Sample {
	j.stack = target.AppendStack(j.stack[:0], s, p.Attachment.Load())
	t := Sample{Sample: s, Stack: j.stack}
	switch j.opt.Contexts {
	case profile.ContextChain:
		user := t.User()
		if s.Flags&bpf.SampleDepths == 0 || len(user) == 0 {
			break // a kernel thread, or 32-bit code
		}
		c := j.Chaining(p)
		j.makeRoom(p, len(user)+1)
		if c.take(&t) {
			j.setRate(p, c)
		}
		j.settle(c, s)
	case profile.ContextPartial:
		j.splicing.complete(&t, j.opt.Check)
		j.stack = t.Stack
	}
	code.Mark(t.Stack)
	return t
}

// LearnCall learns from a call that an engine observed. Unlike the link of a sample, it says how often the call is made.
func (j *Joiner) LearnCall(p *Process, callee, caller target.RawFrame, calleeDepth, callerDepth uint32) {
	if j.opt.Contexts != profile.ContextChain || calleeDepth == 0 || callerDepth == 0 {
		return
	}
	c := j.Chaining(p)
	j.makeRoom(p, 2)
	if c.takeCall(callee, caller, calleeDepth, callerDepth) {
		j.setRate(p, c)
	}
}

// Chaining returns what is known of p's contexts: of those of the VM that it runs now.
func (j *Joiner) Chaining(p *Process) *Chaining {
	serial := p.Attachment.Load()
	if p.Chaining != nil && p.Chaining.Attachment == serial {
		return p.Chaining
	}
	if p.Chaining != nil { // what another VM needed says nothing of this one
		j.opt.PlaceWaiting(p)
	}
	if serial == 0 {
		p.Chaining = newChaining(0, bpf.MaxAttached, j.native)
	} else {
		p.Chaining = newChaining(serial, p.Slot.Load(), newWalkRate(j.opt.WalkEvery))
		j.setRate(p, p.Chaining)
	}
	return p.Chaining
}

// makeRoom forgets all contexts of p if those of a stack of so many frames do not fit.
func (j *Joiner) makeRoom(p *Process, frames int) {
	if c := p.Chaining; !c.Chain.Room(frames) {
		j.opt.PlaceWaiting(p)
		c.Chain.Purge()
	}
}

// setRate sets how often the kernel side walks stacks of p, and has it forget what was forgotten. A slot that p has no longer is left to
// the VM that has it now.
func (j *Joiner) setRate(p *Process, c *Chaining) {
	rate, forgot := c.kernelRate()
	if c.Slot != bpf.MaxAttached && (c.Slot == target.NoSlot || p.Slot.Load() != c.Slot) {
		return
	}
	if c.Slot == bpf.MaxAttached {
		if forgot { // whatever one of them has forgotten, all are asked for again
			j.generation++
		}
		rate.Generation = j.generation
	}
	j.set(c.Slot, rate)
}

func (j *Joiner) set(slot uint32, rate bpf.ChainRate) {
	if err := j.opt.Rates.Put(slot, rate); err != nil {
		j.opt.Log.Warn("cannot set how often stacks are walked", "err", err)
	}
}

// settle has the kernel side walk every sample with a link of several contexts, or do so no longer. Where links that are not known
// are left, so are these.
func (j *Joiner) settle(c *Chaining, s *bpf.Sample) {
	steady, unsettled := c.unsettled(s)
	if !unsettled || j.opt.LeaveUnknown {
		return
	}
	if err := j.opt.SetSteady(s.LinkTag, steady); err != nil {
		j.opt.Log.Warn("a link with several contexts is not always walked", "err", err)
	}
}

// A Sample is a sample that was joined with its context, as far as that is possible when it arrives.
type Sample struct {
	*bpf.Sample
	Stack     []target.RawFrame                // innermost first, as far as known
	fresh     int                              // of Stack, innermost: frames that the thread's previous sample did not have; 0 if nobody counts
	certainty profile.Certainty                // Certain, or Unplaced if the rest is lost
	link      bool                             // of the user's frames there is a link; in Stack there may be more, to check it with
	partial   bool                             // the rest of the user's frames was taken from the thread's previous sample
	right     [len(profile.ContextLevels)]bool // partial, if contexts are checked
}

// User are the frames of the stack without the kernel's.
func (s *Sample) User() []target.RawFrame { return s.Stack[s.inner():] }

// inner is how many frames of the stack are the kernel's.
func (s *Sample) inner() int { return min(len(s.Kernel), len(s.Stack)) }

// depthsOf are the depths of a link as an outermost frame: in a tree of links, those with the same depths are together.
func depthsOf(s *bpf.Sample) target.RawFrame {
	r := target.RawFrame{Kind: target.RawDepths}
	for i, d := range s.Depths[:min(2, len(s.Depths))] {
		r.Frame |= bpf.Frame(d) << (32 * (1 - i))
	}
	return r
}

// depthsIn are the depths that depthsOf recorded.
func depthsIn(r target.RawFrame) []uint32 { return []uint32{uint32(r.Frame >> 32), uint32(r.Frame)} }
