package fold

import (
	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/target"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

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
