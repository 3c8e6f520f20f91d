package fold

import (
	"log/slog"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// JoinOptions say how a Joiner finds contexts, and what it needs from others.
type JoinOptions struct {
	Contexts     profile.ContextMode
	Check        bool   // samples have their whole stacks: count how many contexts are right
	WalkEvery    uint32 // ContextChain: walk one in this many samples whose link is known; 0 adapts
	LeaveUnknown bool   // ContextChain: walk samples whose link is unknown no more often than others
	Log          *slog.Logger

	// The kernel side, for ContextChain.
	Rates     interface{ Put(key, value any) error }  // bpf.Objects.ChainRates
	SetSteady func(linkTag uint64, steady bool) error // bpf.Objects.SetSteady

	// PlaceWaiting gives all waiting samples of a process their contexts, before the known contexts
	// are forgotten.
	PlaceWaiting func(p *Process)
	// Want is called with each stack assigned to samples of a process.
	Want func(p *Process, stack []guest.RawFrame)
}

// A Joiner joins samples with the known contexts, and sets how often the kernel side walks stacks
// with a known link. It belongs to a State.
type Joiner struct {
	opt      JoinOptions
	stack    []guest.RawFrame // scratch
	splicing splicing         // splices partial walks

	// Processes without a VM share one rate.
	native     *WalkRate
	generation uint32 // how many times the kernel side has dropped their links
}

// newJoiner makes a Joiner. If contexts are chained, it sets the initial rate of processes without
// a VM.
func newJoiner(opt JoinOptions) *Joiner {
	j := &Joiner{opt: opt}
	if opt.Contexts == profile.ContextChain {
		j.native = newWalkRate(opt.WalkEvery)
		j.set(bpf.MaxAttached, bpf.ChainRate{Every: j.native.Every})
	}
	return j
}

// Join completes a sample as far as possible at once, and learns from it. code is the code that a
// map of the process names. The result is valid until the next call.
func (j *Joiner) Join(p *Process, s *bpf.Sample, code *guest.JITCode) Sample {
	t := Sample{Sample: s, attachment: p.Attachment.Load(), code: code}
	if j.opt.Contexts == profile.ContextWalk {
		j.stack = slices.Grow(j.stack[:0], len(s.Kernel)+len(s.User)+2)
		t.begin(j.stack)
		return t
	}
	j.stack = guest.AppendStack(j.stack[:0], s, t.attachment)
	t.Stack = j.stack
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

// LearnCall learns from a call that an engine observed. Unlike the link of a sample, it shows how
// often the call is made.
func (j *Joiner) LearnCall(p *Process, callee, caller guest.RawFrame, calleeDepth, callerDepth uint32) {
	if j.opt.Contexts != profile.ContextChain || calleeDepth == 0 || callerDepth == 0 {
		return
	}
	c := j.Chaining(p)
	j.makeRoom(p, 2)
	if c.takeCall(callee, caller, calleeDepth, callerDepth) {
		j.setRate(p, c)
	}
}

// Chaining returns the known contexts of p: those of the VM that it runs now.
func (j *Joiner) Chaining(p *Process) *Chaining {
	serial := p.Attachment.Load()
	if p.Chaining != nil && p.Chaining.Attachment == serial {
		return p.Chaining
	}
	if p.Chaining != nil { // what another VM needed does not apply to this one
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

// makeRoom forgets all contexts of p if those of a stack with that many frames do not fit.
func (j *Joiner) makeRoom(p *Process, frames int) {
	if c := p.Chaining; !c.Chain.Room(frames) {
		j.opt.PlaceWaiting(p)
		c.Chain.Purge()
	}
}

// setRate sets how often the kernel side walks stacks of p, and makes it forget what was forgotten.
// A slot that p no longer has is left to the VM that has it now.
func (j *Joiner) setRate(p *Process, c *Chaining) {
	rate, forgot := c.kernelRate()
	if c.Slot != bpf.MaxAttached && (c.Slot == guest.NoSlot || p.Slot.Load() != c.Slot) {
		return
	}
	if c.Slot == bpf.MaxAttached {
		if forgot { // if one of them has forgotten anything, the links of all are requested again
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

// settle makes the kernel side walk every sample with a link of several contexts, or stops that.
// With LeaveUnknown, such links are not walked more often either.
func (j *Joiner) settle(c *Chaining, s *bpf.Sample) {
	steady, unsettled := c.unsettled(s)
	if !unsettled || j.opt.LeaveUnknown {
		return
	}
	if err := j.opt.SetSteady(s.LinkTag, steady); err != nil {
		j.opt.Log.Warn("a link with several contexts is not always walked", "err", err)
	}
}

// A Sample is a sample joined with its context, as far as that is possible on arrival.
type Sample struct {
	*bpf.Sample
	Stack []guest.RawFrame // innermost first, as far as known
	// cut says that the callers of the user's innermost frame are missing until complete is called.
	cut bool
	// fresh is how many innermost frames of Stack the thread's previous sample did not have; 0 if
	// they are not counted.
	fresh int
	// certainty is how certain the context of the sample is.
	certainty  profile.Certainty
	link       bool                             // the user's frames are a link; Stack may have more of them, for checks
	partial    bool                             // the other user frames come from the thread's previous sample
	attachment uint32                           // serial of the process's VM
	code       *guest.JITCode                   // code of the process
	right      [len(profile.ContextLevels)]bool // partial, if contexts are checked
}

// begin sets the stack to what buf has room for: all of it, or without the callers of the user's
// innermost frame, if something identifies them.
func (s *Sample) begin(buf []guest.RawFrame) {
	s.Stack, s.cut = buf, true
	if s.Callers == 0 || len(s.Sample.User) < 2 {
		s.complete()
		return
	}
	inner := bpf.Sample{User: s.Sample.User[:1], Kernel: s.Kernel, End: bpf.EndRoot, Attachment: s.Attachment,
		ClassEpoch: s.ClassEpoch}
	s.Stack = guest.AppendStack(buf, &inner, s.attachment)
	s.code.Mark(s.Stack)
}

// complete adds the callers to the stack if they are missing.
func (s *Sample) complete() {
	if s.cut {
		s.Stack = guest.AppendStack(s.Stack[:0], s.Sample, s.attachment)
		s.code.Mark(s.Stack)
		s.cut = false
	}
}

// callers identifies the frames that are missing from a stack that was cut, or would be: with the
// reason why the walk ended.
func (s *Sample) callers() (key uint64, ok bool) {
	return s.Callers ^ uint64(s.End)<<56, s.Callers != 0 && len(s.Sample.User) > 1
}

// User returns the stack without the kernel's frames.
func (s *Sample) User() []guest.RawFrame { return s.Stack[s.inner():] }

// inner is the number of kernel frames in the stack.
func (s *Sample) inner() int { return min(len(s.Kernel), len(s.Stack)) }

// depthsOf returns the depths of a link as an outermost frame: a tree of links then groups those
// with the same depths.
func depthsOf(s *bpf.Sample) guest.RawFrame {
	r := guest.RawFrame{Kind: guest.RawDepths}
	for i, d := range s.Depths[:min(2, len(s.Depths))] {
		r.Frame |= bpf.Frame(d) << (32 * (1 - i))
	}
	return r
}

// depthsIn returns the depths that depthsOf recorded.
func depthsIn(r guest.RawFrame) []uint32 { return []uint32{uint32(r.Frame >> 32), uint32(r.Frame)} }

// A splicing completes partial walks (Whaley, Java Grande 2000, section 4): it keeps the stack of
// each thread's previous sample, as the kernel side does, in the same number of slots.
type splicing struct {
	kept   [keptStacks]keptStack
	buffer []guest.RawFrame
}

// keptStacks is the number of threads whose stacks are kept; KEPT_STACKS in partial.bpf.h.
const keptStacks = 1024

type keptStack struct {
	tid     uint32
	start   uint64 // start of the process, like exec
	exec    uint32
	serial  uint32           // number of the sample, 0 if nothing is kept
	missing int              // unknown outermost frames, as the sample that had them was lost
	user    []guest.RawFrame // the others, innermost first
}

// complete completes a sample. If check is set, the sample has its whole stack, which is compared
// with the result.
func (sp *splicing) complete(t *Sample, check bool) {
	inner, user := t.inner(), t.User()
	whole, fresh, ok := sp.splice(t.Sample, user)
	if check {
		t.right = rightCallers(whole, user, sameFrame)
	}
	t.partial = t.Shared != nil && t.Shared.Base != 0
	t.Stack = append(t.Stack[:inner], whole...)
	t.fresh = inner + fresh
	if !ok {
		t.certainty = profile.Unplaced
	}
}

// splice completes the user frames of a sample. It returns them, and how many of the innermost ones
// the thread's previous sample did not have. The last result is false if the sample with the other
// frames was lost.
//
// Without marks in the process's stack, an activation counts as the previous one if the same call
// site led to the same method. That is wrong for a method that was called again from there: so only
// calls that differ visibly count as new.
func (sp *splicing) splice(s *bpf.Sample, user []guest.RawFrame) (whole []guest.RawFrame, fresh int, ok bool) {
	if s.Shared == nil {
		return user, len(user), true // another thread's stack occupies the slot of its thread
	}
	k := &sp.kept[s.Tid%keptStacks]
	same := k.serial != 0 && k.tid == s.Tid && k.start == s.Start && k.exec == s.Exec
	missing := 0
	sp.buffer = append(sp.buffer[:0], user[:min(int(s.Shared.Own), len(user))]...)
	if s.Shared.Base != 0 {
		n := int(s.Shared.Frames)
		if same && k.serial == s.Shared.Base && n <= len(k.user)+k.missing {
			missing = min(n, k.missing)
			sp.append(k.user[len(k.user)-(n-missing):], s.ClassEpoch)
			if n == 0 {
				sp.end(k.end())
			}
		} else {
			missing = n
		}
		if missing > 0 {
			sp.end(bpf.EndKnown)
		}
	}
	fresh = len(sp.buffer)
	if same && missing == 0 && k.missing == 0 {
		fresh -= sharedFrames(sp.buffer, k.user)
	} else if missing > 0 {
		fresh = min(int(s.Shared.Own), len(sp.buffer))
	}
	k.tid, k.start, k.exec, k.serial, k.missing = s.Tid, s.Start, s.Exec, s.Shared.Serial, missing
	k.user = append(k.user[:0], sp.buffer...)
	return sp.buffer, fresh, missing == 0
}

// append adds frames that were already on the stack. They are still valid: classes with methods on
// the stack are not unloaded.
func (sp *splicing) append(base []guest.RawFrame, classEpoch uint32) {
	for _, r := range base {
		if r.Frame.Kind() == bpf.FrameInterpreted {
			r.Epoch = classEpoch
		}
		sp.buffer = append(sp.buffer, r)
	}
}

// end records why the frames end.
func (sp *splicing) end(why bpf.WalkEnd) {
	if n := len(sp.buffer); n > 0 {
		sp.buffer[n-1].End = why
	}
}

// end is the end of the walk that the outermost frame comes from.
func (k *keptStack) end() bpf.WalkEnd {
	if len(k.user) == 0 {
		return bpf.EndNone
	}
	return k.user[len(k.user)-1].End
}

// sharedFrames counts the outermost frames that two stacks have in common, including the first one
// that differs only in its place in the method.
func sharedFrames(a, b []guest.RawFrame) (n int) {
	for n < len(a) && n < len(b) {
		x, y := a[len(a)-1-n], b[len(b)-1-n]
		x.Epoch, y.Epoch = 0, 0
		if !sameFrame(x, y) {
			if codeOf(x) == codeOf(y) {
				n++
			}
			break
		}
		n++
	}
	return n
}

// codeOf returns the part of a frame that identifies its method, as far as the frame does.
func codeOf(r guest.RawFrame) guest.RawFrame {
	m := activate(r, 0).Method
	m.End = 0
	return m
}

// sameFrame compares frames of one stack at different times. Classes may have been unloaded
// between, but not those of methods on the stack.
func sameFrame(a, b guest.RawFrame) bool {
	a.Epoch, a.End, b.Epoch, b.End = 0, 0, 0, 0
	return a == b
}
