package agent

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// ContextMode is how calling contexts are found.
type ContextMode uint8

const (
	// ContextWalk walks every stack to its root.
	ContextWalk ContextMode = iota
	// ContextPartial walks a stack up to the frames that it shares with the thread's previous one: Whaley's partial
	// walk (Java Grande 2000, section 4).
	ContextPartial
	// ContextChain takes the leaf, its depth and its caller, and chains them to contexts that were learned: CallerChaining
	// of Inoue and Nakatani (OOPSLA 2009, section 6).
	ContextChain
)

var contextModes = [...]string{ContextWalk: "walk", ContextPartial: "partial", ContextChain: "chain"}

// String is the mode as users write it.
func (m ContextMode) String() string { return contextModes[m] }

// ParseContextMode reads what String wrote.
func ParseContextMode(s string) (ContextMode, error) {
	for m, name := range contextModes {
		if s == name {
			return ContextMode(m), nil
		}
	}
	return 0, fmt.Errorf("unknown context mode %q: choose walk, partial or chain", s)
}

// kernelModes are the modes as the kernel side knows them.
var kernelModes = [...]bpf.Mode{ContextWalk: bpf.ModeWalk, ContextPartial: bpf.ModePartial, ContextChain: bpf.ModeChain}

// Certainty says how much is known of the contexts in a tree.
type Certainty uint8

const (
	Certain   Certainty = iota // walked, or the only context that fits
	Ambiguous                  // several contexts fit: the weight was divided among them
	Fitted                     // none fits: this is the one of a possible caller or callee
	Unplaced                   // not all callers are known: mostly none beyond the first
)

var certainties = [...]string{Certain: "certain", Ambiguous: "ambiguous", Fitted: "fitted", Unplaced: "unplaced"}

// String is the certainty in one word, as profiles hold it.
func (c Certainty) String() string { return certainties[c] }

// Contexts tells how the contexts of a process were found where not every stack was walked.
type Contexts struct {
	Mode ContextMode

	// Samples of the window: Walked + Linked is all of them.
	Walked                      uint64 // to the root, or to where the walk ended early
	Linked                      uint64 // by a link, or partially
	Ambiguous, Fitted, Unplaced uint64 // of Linked

	// Table 1 of Inoue and Nakatani (OOPSLA 2009), of ContextChain: the tree as learned until the window closed.
	Nodes   int // contexts
	Shared  int // of those, nodes whose method is at that depth below other callers, too
	Methods int // distinct
	// Samples by how many levels of callers are known for sure: index 0 for at least one level, 1 for at least three, 2
	// for all.
	ByDepth [3]uint64 // by {method, depth}, as in the paper
	BySite  [3]uint64 // by {method, depth, call site}, which is what the links have

	Check *ContextCheck // nil unless Options.CheckContexts
}

// Levels of callers that are counted: at least so many. 0 stands for the whole context.
var ContextLevels = [3]int{1, 3, 0}

// ContextCheck tells how often the context that was found for a sample is the one that a full walk in the same sample
// found. Only samples of which not everything was walked anyway are counted; of several contexts, the likeliest counts.
type ContextCheck struct {
	Samples uint64
	Right   [3]uint64 // by ContextLevels: the callers are the same for so many levels, or to the root if that is nearer
}
