package estimate

import "math"

// An expansion adds the calls that were compiled away. From the rate of a code follow those of the copies that the
// debug information shows in it, each by the profile of the method that it is in; and the calls of methods that left
// no trace, as those are all calls that their profiles count and that are not made physically.
type expansion struct {
	in          *Input
	frequencies frequencies
	result      *Result
	network     *network
	depth       int
	to          callSet

	steps    int                // that are left
	least    float64            // calls a second that are worth to be followed
	physical map[knownCall]bool // calls that are made
	native   map[MethodID]bool  // has a wrapper
	// interpreted is how often a second methods can be called at most that have no code, by their samples.
	interpreted map[MethodID]float64
}

func newExpansion(in *Input, f frequencies, n *network, r *Result, depth int, to callSet) *expansion {
	e := &expansion{
		in: in, frequencies: f, result: r, network: n, depth: depth, to: to, steps: maxSteps,
		physical: map[knownCall]bool{}, native: map[MethodID]bool{}, interpreted: map[MethodID]float64{},
	}
	for c := range in.Codes {
		if !in.has(CodeID(c)) {
			continue
		}
		switch code := &in.Codes[c]; code.Tier {
		case Native:
			e.native[code.Method] = true
		case Interpreted:
			e.interpreted[code.Method] = e.mostInterpreted(n.spent[c].samples)
		}
	}
	for _, rate := range r.Rates {
		e.least += leastShare * rate.PerSecond
	}
	for i := range n.calls {
		if c := &n.calls[i]; c.caller != VM && len(c.site) > 0 {
			e.physical[knownCall{keyOf(c.caller, c.site), in.Codes[c.callee].Method}] = true
		}
	}
	return e
}

// mostInterpreted is how many calls a second the interpreter has the time for in so many samples of a method.
func (e *expansion) mostInterpreted(samples float64) float64 {
	return (samples + 2*math.Sqrt(samples) + 2) * e.in.Period / e.in.Duration / interpretedTime
}

func (e *expansion) expand() {
	for c, rate := range e.result.Rates {
		if rate.PerSecond > 0 && e.in.Codes[c].Tier != Native {
			e.code(CodeID(c), rate)
		}
	}
}

// leastShare is the part of all physical calls that a call must have to be followed.
const leastShare = 1e-7

// maxSteps bounds the calls that are followed into methods that left no trace, over all codes: profiles are not trees.
const maxSteps = 1 << 20

// inlinedTime is the least that a call takes that was compiled away, in seconds. Some take none; but then there are
// others around them that do.
const inlinedTime = 0.2e-9

// code follows the calls in one code.
func (e *expansion) code(id CodeID, rate Rate) {
	tree, ok := newCopyTree(e.in, id)
	if !ok {
		return // of interpreted methods, all calls are physical
	}
	t := e.network.spent[id].samples
	most := max((t+2*math.Sqrt(t)+2)*e.in.Period/e.in.Duration/inlinedTime, rate.PerSecond)
	w := codeWalk{
		expansion: e, id: id, most: most, copyTree: tree, rates: make([]float64, len(tree.copies)),
		variances: make([]float64, len(tree.copies)),
	}
	w.rates[0], w.variances[0] = rate.PerSecond, rate.Variance
	for i := range tree.copies {
		w.copy(int32(i))
	}
	w.finish()
}
