package estimate

import (
	"math"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// Time that the VM's own counts explain, in seconds.
const (
	// unitTime is what an addition of the bytecode takes in optimised code, on average over what
	// programs do.
	unitTime = 0.08e-9
	// workCold is what a rare call takes longer, because its code and data are not in the caches.
	workCold = 500e-9
	// madeCall is the cost of a call that is made, in additions.
	madeCall = 8
)

// Variances of logarithms.
const (
	workVariance   = 1.  // time for the same work differs by this among the codes of a program
	coldVariance   = 3.  // workCold differs by this among calls
	workerVariance = 0.7 // unitTime differs by this among programs: all codes of a program share the error
)

const (
	// leastWorked are executions of a copy per entry that are not worth following.
	leastWorked = 1e-3
	// Bounds on the calls that are followed for the work of one code, and of all together. Beyond
	// them it is not known.
	codeSteps, workSteps = 1 << 12, 1 << 18
)

// weighWork sets how long an entry of each optimised code takes by what the VM counted in the
// methods that are compiled into it. The time of a call may be anything; that of an addition is
// known within a factor of a few.
func (n *network) weighWork(in *Input, f frequencies) {
	n.work = make([]float64, len(in.Codes))
	if !slices.ContainsFunc(in.Methods, func(p Profile) bool { return p.Work > 0 }) {
		return
	}
	e := &expansion{in: in, frequencies: f, result: &Result{}, network: n, depth: DefaultDepth, least: leastWorked}
	for c, left := 0, workSteps; c < len(in.Codes) && left > 0; c++ {
		if id := CodeID(c); in.Codes[c].Tier == Compiled && in.has(id) {
			e.steps = min(codeSteps, left)
			left -= e.steps
			if work := e.work(id); e.steps > 0 {
				n.work[c] = work * unitTime
			}
			left += e.steps
		}
	}
}

// busiest is the most entries a second of wall time that a code's samples leave time for, in 95 of
// 100 cases.
func (n *network) busiest(in *Input, c CodeID) float64 {
	t := n.spent[c].samples
	took := callTime
	if work := n.work[c]; work > 0 {
		took = max(took, work/math.Exp(normal95*math.Sqrt(workVariance+workerVariance)))
	}
	return (t + 2*math.Sqrt(t) + 2) * in.Period / in.Duration / took
}

// normal95 is how many standard deviations 95 of 100 values are at most above the mean.
const normal95 = 1.65

// work is the cost of an entry of a code in additions; 0 if it is not known.
func (e *expansion) work(id CodeID) float64 {
	code := &e.in.Codes[id]
	own := e.in.Methods[code.Method].work()
	if own == 0 {
		return 0
	}
	tree, ok := newCopyTree(e.in, id)
	if !ok {
		return own + madeCall
	}
	w := codeWalk{
		expansion: e, id: id, most: maxRate, copyTree: tree, rates: make([]float64, len(tree.copies)),
		variances: make([]float64, len(tree.copies)),
	}
	w.rates[0] = 1
	sum := madeCall + own
	for i := range tree.copies {
		w.copy(int32(i))
	}
	for _, found := range w.found {
		if found.basis == profile.Inferred { // others take their time in code of their own
			sum += found.perSecond * e.in.Methods[found.callee].work()
		}
	}
	return sum
}

// work is the cost of an invocation, in additions; 0 if it is not known.
func (p *Profile) work() float64 {
	switch {
	case !(p.Work > 0) || !finite(p.Work):
		return 0
	case p.Invocations == 0:
		return p.Work
	case !(p.Invocations >= minInvocations) || !finite(p.Invocations):
		return 0
	}
	return p.Work / p.Invocations
}
