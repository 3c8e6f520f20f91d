package agent

import (
	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/target"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// A taken is a sample as it goes into windows.
type taken struct {
	*bpf.Sample
	stack     []target.RawFrame                // innermost first, as far as known
	fresh     int                              // of stack, innermost: frames that the thread's previous sample did not have; 0 if nobody counts
	certainty profile.Certainty                // Certain, or Unplaced if the rest is lost
	link      bool                             // of the user's frames there is a link; in stack there may be more, to check it with
	partial   bool                             // the rest of the user's frames was taken from the thread's previous sample
	right     [len(profile.ContextLevels)]bool // partial, if contexts are checked
}

// take completes a sample as far as that can be done at once, and learns from it; mu is held.
func (a *Agent) take(p *process, s *bpf.Sample, code *target.JITCode) taken {
	a.stack = target.AppendStack(a.stack[:0], s, p.Attachment.Load())
	t := taken{Sample: s, stack: a.stack}
	inner := min(len(s.Kernel), len(t.stack))
	user := t.stack[inner:]
	switch a.opt.Contexts {
	case profile.ContextChain:
		if s.Flags&bpf.SampleDepths == 0 || len(user) == 0 {
			break // a kernel thread, or 32-bit code
		}
		c := a.chainingOf(p)
		a.makeRoom(p, len(user)+1)
		learn := c.learn
		if t.link = s.Flags&bpf.SampleLink != 0; t.link {
			learn = c.learnLink
		}
		if learn(s, user) {
			a.setChainRate(c)
		}
		a.rates.settle(a, c, s)
	case profile.ContextPartial:
		whole, fresh, ok := a.splicing.splice(s, user)
		if a.opt.CheckContexts {
			t.right = rightCallers(whole, user, sameFrame)
		}
		t.partial = s.Shared != nil && s.Shared.Base != 0
		t.stack = append(t.stack[:inner], whole...)
		a.stack = t.stack
		t.fresh = inner + fresh
		if !ok {
			t.certainty = profile.Unplaced
		}
	}
	code.Mark(t.stack)
	return t
}

// depthsOf are the depths of a link as an outermost frame: in a tree of links, those with the same depths are together.
func depthsOf(s *bpf.Sample) target.RawFrame {
	r := target.RawFrame{Kind: target.RawDepths}
	for i, d := range s.Depths[:min(2, len(s.Depths))] {
		r.Frame |= bpf.Frame(d) << (32 * (1 - i))
	}
	return r
}

// depths is what depthsOf noted.
func depthsIn(r target.RawFrame) []uint32 { return []uint32{uint32(r.Frame >> 32), uint32(r.Frame)} }

// fold adds a sample to what the window has of a thread. It reports whether there are frames that are new to the window. Without
// room for more contexts the sample counts for the deepest one of its callers that is there.
func (t *rawThread) fold(s taken, room bool) (fresh bool) {
	copy(t.comm[:], s.Comm)
	if s.Depths != nil {
		if key := linkKey(s); key != nil {
			limit(&t.links, room)
			t.links.Add(append(key, depthsOf(s.Sample)), 1)
		}
	}
	tree := &t.trees[s.certainty]
	stack := s.stack
	if s.link {
		tree = &t.waiting
		stack = append(stack, depthsOf(s.Sample))
	}
	limit(tree, room)
	n := tree.Len()
	tree.AddNew(stack, s.fresh, 1)
	switch {
	case s.link:
		t.count.linked++ // placed when the window closes
	case s.partial:
		t.count.linked++
		t.count.placed[s.certainty]++
		t.count.check(1, s.right)
	default:
		t.count.walked++
	}
	return tree.Len() != n
}

// limit ends the growth of a tree, for good, if there is no room for more contexts.
func limit(t *rawTree, room bool) {
	if !room {
		t.Limit = max(t.Len(), 1) // 0 would be the default
	}
}

// contexts is how many the thread's trees have.
func (t *rawThread) contexts() int {
	n := t.waiting.Len() + t.links.Len()
	for i := range t.trees {
		n += t.trees[i].Len()
	}
	return n
}

// linkKey is the link of a sample without what differs from sample to sample: the leaf's place and the kernel's frames. It is
// nil if the sample is of no code that is known.
func linkKey(s taken) []target.RawFrame {
	user := s.stack[min(len(s.Kernel), len(s.stack)):]
	if len(user) == 0 || user[0].Kind != target.RawExact {
		return nil
	}
	key := append(make([]target.RawFrame, 0, 3), codeOf(user[0]))
	switch {
	case len(user) > 1:
		key = append(key, user[1])
		key[1].End = 0
	case user[0].End.Truncated():
		key = append(key, target.RawFrame{Kind: target.RawNothing, End: user[0].End})
	}
	return key
}
