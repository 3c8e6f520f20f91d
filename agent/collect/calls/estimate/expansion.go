package estimate

import (
	"math"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// An expansion adds the inlined calls. The rate of a code gives the rates of the copies that debug
// information shows in it, each by the profile of the method that contains it. It also gives the
// calls of methods inlined without a trace: all calls that their profiles count and that are not
// made physically.
type expansion struct {
	in          *Input
	frequencies frequencies
	result      *Result
	network     *network
	depth       int
	to          callSet

	steps    int                // steps left
	least    float64            // calls a second that are worth following
	physical map[knownCall]bool // calls that are made
	native   map[MethodID]bool  // has a wrapper
	// interpreted is an upper bound of the calls a second of methods without code, from their
	// samples.
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

// mostInterpreted is how many calls a second the interpreter has time for, given the samples of a
// method.
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

// leastShare is the share of all physical calls below which a call is not followed.
const leastShare = 1e-7

// maxSteps bounds the calls that are followed into methods inlined without a trace, over all codes:
// profiles are not trees.
const maxSteps = 1 << 20

// inlinedTime is the minimum time of an inlined call, in seconds. Some take none, but calls around
// them do.
const inlinedTime = 0.2e-9

// code follows the calls in one code.
func (e *expansion) code(id CodeID, rate Rate) {
	tree, ok := newCopyTree(e.in, id)
	if !ok {
		return // all calls of interpreted methods are physical
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

// A copyTree is the tree of methods inlined into a code.
type copyTree struct {
	copies   []Copy
	children [][]int32 // by copy: those inlined into it
}

// newCopyTree returns false if the copies are unknown, or are not a tree of known methods.
func newCopyTree(in *Input, id CodeID) (copyTree, bool) {
	copies := in.Codes[id].Copies
	if len(copies) == 0 || copies[0].Method != in.Codes[id].Method {
		return copyTree{}, false
	}
	t := copyTree{copies, make([][]int32, len(copies))}
	for i := 1; i < len(copies); i++ {
		c := &copies[i]
		if c.Parent < 0 || int(c.Parent) >= i || !in.knowsMethod(c.Method) {
			return copyTree{}, false
		}
		t.children[c.Parent] = append(t.children[c.Parent], int32(i))
	}
	return t, true
}

// inlined reports whether calls of a method at a bytecode of copy i were inlined.
func (t *copyTree) inlined(i, bci int32, callee MethodID) bool {
	for _, j := range t.children[i] {
		if c := &t.copies[j]; c.BCI == bci && c.Method == callee {
			return true
		}
	}
	return false
}

// makes reports whether the copy makes calls at a bytecode.
func (c *Copy) makes(bci int32) bool {
	_, ok := slices.BinarySearch(c.Calls, bci)
	return ok
}

// chain is the inline chain of copy i, with room for the innermost place.
func (t *copyTree) chain(i int32) []Place {
	chain := []Place{{}}
	for i > 0 {
		c := &t.copies[i]
		chain = append(chain, Place{t.copies[c.Parent].Method, c.BCI})
		i = c.Parent
	}
	return chain
}

// A codeWalk follows the calls in one code, copy by copy.
type codeWalk struct {
	*expansion
	copyTree
	id        CodeID
	most      float64   // calls a second that the code has time for
	rates     []float64 // by copy: how often a second it is run through
	variances []float64 // variances of the logarithms of rates
	found     []found
	inferred  float64 // calls a second, of found
}

// A found call is one that follows from the profiles.
type found struct {
	callKey
	perSecond, variance float64
}

func (w *codeWalk) add(caller Place, callee MethodID, perSecond, variance float64, basis profile.Basis) {
	w.found = append(w.found, found{callKey{caller, callee, basis}, perSecond, variance})
	if basis == profile.Inferred {
		w.inferred += perSecond
	}
}

// finish hands over what was found. Inlined calls take time, too: if there are more of them than
// the code has time for, its profiles are from another phase, and all of them are scaled down.
func (w *codeWalk) finish() {
	scale := 1.
	if w.inferred > w.most {
		scale = w.most / w.inferred
	}
	for _, f := range w.found {
		if f.basis == profile.Inferred {
			f.perSecond *= scale
		}
		most := 0. // if the code runs as often as it has time for
		if w.in.Codes[w.id].Tier == Compiled && !w.in.Codes[w.id].Loop {
			most = f.perSecond * w.network.busiest(w.in, w.id) / w.rates[0] * factor(max(f.variance-w.variances[0], 0))
		}
		w.to.add(f.caller, f.callee, f.perSecond, f.variance, most, f.basis)
	}
}

// copy adds the calls in one copy, and sets the rates of the copies inlined into it.
func (w *codeWalk) copy(i int32) {
	c := &w.copies[i]
	rate := w.rates[i]
	if rate < w.least {
		return
	}
	inlined := map[int32][]int32{} // by bytecode index
	var order []int32
	for _, j := range w.children[i] {
		bci := w.copies[j].BCI
		if inlined[bci] == nil {
			order = append(order, bci)
		}
		inlined[bci] = append(inlined[bci], j)
	}
	for _, bci := range order {
		w.divide(Place{c.Method, bci}, inlined[bci], i)
	}
	chain := w.chain(i)
	for s := range w.in.Methods[c.Method].Sites {
		bci := w.in.Methods[c.Method].Sites[s].BCI
		at := Place{c.Method, bci}
		chain[0] = at
		f, key := w.frequencies[at], keyOf(w.id, chain)
		if f == nil {
			continue
		}
		for _, t := range f.targets {
			if w.physical[knownCall{key, t.Method}] || w.isAmong(inlined[bci], t.Method) ||
				!w.in.knowsMethod(t.Method) {
				continue
			}
			perSecond, variance := rate*f.calls(t.Method), w.variances[i]+siteVariance(&w.result.Credibility, f.perCall)
			if c.makes(bci) && !w.native[t.Method] { // it calls an interpreted method
				most, seen := w.interpreted[t.Method]
				if !seen {
					most = w.mostInterpreted(0)
				}
				w.add(at, t.Method, min(perSecond, most), variance, profile.Estimated)
				continue
			}
			w.vanished(at, t.Method, perSecond, variance, map[MethodID]bool{c.Method: true}, 1)
		}
	}
}

// noProfile is the variance of the logarithm of a call that is assumed to be made once per entry,
// without a profile.
const noProfile = 4.

// divide divides the calls at a site in copy i among the methods inlined there.
func (w *codeWalk) divide(at Place, children []int32, i int32) {
	f, rate, variance := w.frequencies[at], w.rates[i], w.variances[i]+noProfile
	if f != nil {
		variance = w.variances[i] + siteVariance(&w.result.Credibility, f.perCall)
	}
	unattributed := 0
	for _, j := range children {
		if f != nil && f.calls(w.copies[j].Method) == 0 {
			unattributed++
		}
	}
	for _, j := range children {
		callee := w.copies[j].Method
		perSecond := rate / float64(len(children)) // without a profile: once per entry
		if f != nil {
			if perSecond = rate * f.calls(callee); perSecond == 0 {
				perSecond = rate * f.rest() / float64(unattributed)
			}
		}
		w.rates[j], w.variances[j] = min(perSecond, w.most), variance
		if perSecond > 0 {
			w.add(at, callee, w.rates[j], variance, profile.Inferred)
		}
	}
}

func (w *codeWalk) isAmong(copies []int32, method MethodID) bool {
	return slices.ContainsFunc(copies, func(j int32) bool { return w.copies[j].Method == method })
}

// maxTraceless bounds the calls at one site per entry of a method inlined without a trace. A loop
// would have left a trace: if a profile counts a loop nevertheless, the compiler has replaced the
// method's body.
const maxTraceless = 8

// vanished adds a call inlined without a trace, and the calls that its callee makes.
func (w *codeWalk) vanished(at Place, callee MethodID, rate, variance float64, stack map[MethodID]bool, depth int) {
	if rate = min(rate, w.most); rate < w.least || w.steps == 0 {
		return
	}
	w.steps--
	w.add(at, callee, rate, variance, profile.Inferred)
	if depth >= w.depth || stack[callee] {
		return
	}
	stack[callee] = true
	defer delete(stack, callee)
	for i := range w.in.Methods[callee].Sites {
		at := Place{callee, w.in.Methods[callee].Sites[i].BCI}
		f := w.frequencies[at]
		if f == nil || f.perCall > maxTraceless {
			continue
		}
		for _, t := range f.targets {
			if w.in.knowsMethod(t.Method) {
				w.vanished(at, t.Method, rate*f.calls(t.Method), variance+
					siteVariance(&w.result.Credibility, f.perCall), stack, depth+1)
			}
		}
	}
}
