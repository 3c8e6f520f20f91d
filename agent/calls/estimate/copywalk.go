package estimate

import (
	"slices"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"
)

// A codeWalk follows the calls in one code, copy by copy.
type codeWalk struct {
	*expansion
	copyTree
	id        CodeID
	most      float64   // calls a second that the code has the time for
	rates     []float64 // by copy: how often a second it is run through
	variances []float64 // of their logarithms
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

// finish hands over what was found. Calls that were compiled away take time nevertheless: if they are more than the
// code has the time for, its profiles are of another phase, and all of them are taken to be fewer.
func (w *codeWalk) finish() {
	scale := 1.
	if w.inferred > w.most {
		scale = w.most / w.inferred
	}
	for _, f := range w.found {
		if f.basis == profile.Inferred {
			f.perSecond *= scale
		}
		w.to.add(f.caller, f.callee, f.perSecond, f.variance, f.basis)
	}
}

// copy adds the calls in one copy, and sets the rates of the copies in it.
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
			if w.physical[knownCall{key, t.Method}] || w.isAmong(inlined[bci], t.Method) || !w.in.knowsMethod(t.Method) {
				continue
			}
			perSecond, variance := rate*f.calls(t.Method), w.variances[i]+siteVariance(&w.result.Credibility, f.perCall)
			if c.makes(bci) && !w.native[t.Method] { // of a method that is interpreted
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

// noProfile is the variance of the logarithm of what is taken to be called once each time, for want of a profile.
const noProfile = 4.

// divide divides the calls at a site in copy i among what was inlined there.
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
		perSecond := rate / float64(len(children)) // without a profile: once each time
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

// maxTraceless is how often a method that left no trace can call something each time. A loop would have left one: where
// a profile counted one nevertheless, the compiler has put something else in the method's place.
const maxTraceless = 8

// vanished adds a call that left no trace, and those that its callee makes.
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
				w.vanished(at, t.Method, rate*f.calls(t.Method), variance+siteVariance(&w.result.Credibility, f.perCall), stack, depth+1)
			}
		}
	}
}
