package profile

import "fmt"

// A ContextMode is how calling contexts are found.
type ContextMode uint8

const (
	// ContextWalk walks every stack to its root.
	ContextWalk ContextMode = iota
	// ContextPartial walks a stack up to the frames that it shares with the thread's previous one:
	// the partial walk of Whaley (Java Grande 2000, section 4).
	ContextPartial
	// ContextChain takes the leaf, its depth and its caller, and looks them up among learned
	// contexts: CallerChaining of Inoue and Nakatani (OOPSLA 2009, section 6).
	ContextChain
)

var contextModeNames = [...]string{ContextWalk: "walk", ContextPartial: "partial", ContextChain: "chain"}

// String is the mode as --context takes it.
func (m ContextMode) String() string { return contextModeNames[m] }

// ParseContextMode is the inverse of String.
func ParseContextMode(s string) (ContextMode, error) {
	for m, name := range contextModeNames {
		if s == name {
			return ContextMode(m), nil
		}
	}
	return 0, fmt.Errorf("unknown context mode %q: choose walk, partial or chain", s)
}

// MarshalText writes the mode's name, for JSON.
func (m ContextMode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (m *ContextMode) UnmarshalText(text []byte) (err error) {
	*m, err = ParseContextMode(string(text))
	return err
}

// A Certainty says how reliable the contexts of a tree are.
type Certainty uint8

const (
	Certain     Certainty = iota // walked, or the only context that matches
	Ambiguous                    // several contexts match: the weight was divided among them
	Fitted                       // no context matches: this is one of a possible caller or callee
	Unplaced                     // some callers are unknown, mostly all beyond the first
	Certainties                  // number of certainties
)

var certaintyNames = [Certainties]string{Certain: "certain", Ambiguous: "ambiguous", Fitted: "fitted",
	Unplaced: "unplaced"}

// String is the certainty as profile files hold it.
func (c Certainty) String() string { return certaintyNames[c] }

// Contexts reports how the contexts of a process were found if not every stack was walked.
type Contexts struct {
	Mode ContextMode

	// Samples of the window; Walked + Linked is all of them.
	Walked                      uint64 // walked to the root, or to where the walk ended early
	Linked                      uint64 // found from a link or a partial walk
	Ambiguous, Fitted, Unplaced uint64 // parts of Linked

	// Table 1 of Inoue and Nakatani (OOPSLA 2009), for ContextChain: the tree learned until the
	// window closed.
	Nodes   int // contexts
	Shared  int // nodes whose method occurs at the same depth below other callers as well
	Methods int // distinct methods
	// Samples by how many levels of callers are certain, indexed as ContextLevels.
	ByDepth [3]uint64 // by {method, depth}, as in the paper
	BySite  [3]uint64 // by {method, depth, call site}, as links have it

	Check *ContextCheck // nil unless Options.CheckContexts
}

// ContextLevels are minimum numbers of caller levels; 0 stands for the whole context.
var ContextLevels = [3]int{1, 3, 0}

// A ContextCheck compares the context that was found for a sample with a full walk of the same
// sample. It covers only samples that were not fully walked anyway. If several contexts match, the
// likeliest one counts.
type ContextCheck struct {
	Samples uint64
	Right   [3]uint64 // samples with equal callers, by ContextLevels, or up to the root if that is nearer
}
