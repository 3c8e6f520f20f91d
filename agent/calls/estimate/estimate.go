// Package estimate finds out how often calls are made in a guest that cannot be asked: from samples of a timer, from
// what the VM itself counted, and from a few moments in which breakpoints listened.
//
//	result := estimate.Estimate(in, estimate.Options{Logical: true})
//	for _, request := range estimate.Plan(in, result, budget) { … } // what to listen to next
//
// Samples show where time goes. How it divides among the callers of a method is near the truth; how often a method is
// called does not follow from it, as a call may take any time. (Whaley's partial stacks and Arnold & Grove's counters,
// CGO 2005, start from the same fact.) Five other facts help:
//
//   - The time in prologues and epilogues is about the same for all calls of hot code. It is wrong by a factor of two
//     or three for single methods, and much too long for rarely called ones, whose code is not in the caches.
//   - The VM counts each call of a method while it interprets it, or runs code of its profiling tiers. How often a site
//     is executed per invocation is usually exact for a method that always does the same; it is of the guest's youth
//     for others. The products along an inline chain say how often a physical call is made per entry of the caller's
//     code, and how often the calls that were compiled away are.
//   - The calls that compiled code makes can be read from it, also those that no sample shows; the others that profiles
//     count were compiled away.
//   - A breakpoint on a method that is called rarely counts it for some milliseconds, and its silence bounds the rate.
//   - Breakpoints on a caller and its callee at once show how often one calls the other, however hot they are.
//
// All of them are statements about the logarithms of rates, each with a variance: "this is about that", or "this is
// so much more than that". The estimate is what is most likely under all of them, with errors from Student's t
// distribution, as each kind is sometimes very wrong: see equation. How the entries of a code divide among its callers
// depends on the callers' rates in turn, so that both are computed in alternation: see network.divide.
//
// The package is arithmetic: it reads nothing, keeps nothing, and gives the same result for the same input.
package estimate

import (
	"math"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"
)

// Options say what to estimate. The zero value is the physical call graph: calls that are made by code of one method
// to code of another.
type Options struct {
	// Logical adds the calls that were compiled away.
	Logical bool
	// Depth bounds how deep calls are followed into methods that left no trace in the code that they were compiled
	// into. 0 means DefaultDepth.
	Depth int
}

// DefaultDepth is more than compilers inline.
const DefaultDepth = 16

// Estimate returns the most likely call graph. Its cost is linear in the edges and codes of the input.
func Estimate(in *Input, options Options) *Result {
	if !in.measured() {
		return &Result{Credibility: profile.Credibility{Error: math.NaN(), Why: "no time was observed"}}
	}
	frequencies := newFrequencies(in.Methods)
	n := newNetwork(in, frequencies)
	h := listen(in)
	r := &Result{Credibility: believe(n, h), network: n}
	n.apply(&r.Credibility, h)
	x, variances := n.solve(in, h, r.Credibility.Credible)
	r.Rates = n.rates(in, x, variances)
	calls := newCalls()
	n.physical(in, r.Rates, calls)
	if options.Logical {
		depth := options.Depth
		if depth <= 0 {
			depth = DefaultDepth
		}
		newExpansion(in, frequencies, n, r, depth, calls).expand()
	}
	in.useCounters(n, calls, options.Logical)
	r.Calls = calls.sorted()
	return r
}

// measured reports whether there was a time to estimate something of.
func (in *Input) measured() bool {
	for _, seconds := range []float64{in.Duration, in.Period} {
		if !(seconds > 0) || !finite(seconds) {
			return false
		}
	}
	return sensible(in.HitCost) && sensible(in.CPU)
}

// solve computes the logarithms of rates, in calls per second of CPU time: so samples and windows speak of the same
// time, whatever else the machine does. Shares depend on rates and rates on shares: a few rounds of both are enough.
// It begins with what codes' own time and windows say, so that profiles which contradict them are outliers from the
// start, but with larger errors first: most of that is a little wrong. The second result is their variances.
func (n *network) solve(in *Input, h *hearing, profiles bool) (x, spread []float64) {
	const outer, inner = 5, 6
	tally := newTally(in, n)
	// Breakpoints alone observe rarely called code, whose time says nothing about that of hot code. Counts reach hot code
	// through the profiles, if these are used.
	own := timed(in, n, profiles && len(tally) > 0)
	x = make([]float64, n.unknowns)
	for i := range own {
		if e := &own[i]; e.bound == about {
			x[e.to] = e.value
		}
	}
	for c, output := range n.output {
		x[output] = x[c]
	}
	own = append(own, h.equations()...)
	for i := range own {
		own[i].value = near(own[i].value)
	}
	var all []equation
	for round := range outer {
		n.divide(x, round > 0)
		all = tally.equations(x, n.equations(append(all[:0], own...)))
		if round == 0 {
			solve(x, all, 3, inner)
		}
		solve(x, all, 1, inner)
	}
	n.divide(x, true)
	n.settle(x, all)
	return x, variances(x, all)
}

// settle notes for each code what its rate mostly follows from. What was measured in the code itself comes first: links
// to others are often stronger, but carry that on.
func (n *network) settle(x []float64, equations []equation) {
	n.evidence = make([]Evidence, len(n.into))
	weights := make([][evidences]float64, len(x))
	for i := range equations {
		e := &equations[i]
		e.reweight(x, 1)
		weights[e.to][e.evidence] += e.weight
		if e.from != VM {
			weights[e.from][e.evidence] += e.weight
		}
	}
	for c := range n.evidence {
		w := &weights[c]
		for _, by := range []Evidence{Counter, Listened, Profiles, Time} {
			if w[by] > 0 && w[by] >= w[Time] {
				n.evidence[c] = by
				break
			}
		}
	}
}

// rates are those of codes that were seen at work, or that take part in a call.
func (n *network) rates(in *Input, x, variances []float64) []Rate {
	active := make([]bool, len(in.Codes))
	for c := range active {
		active[c] = n.spent[c].samples > 0 || n.evidence[c] >= Listened
	}
	for i := range n.links {
		l := &n.links[i]
		active[l.to] = true
		if l.from != VM {
			active[l.from] = true
		}
	}
	rates := make([]Rate, len(in.Codes))
	for c := range rates {
		if active[c] && in.has(CodeID(c)) && !in.Codes[c].Loop {
			rates[c] = Rate{min(math.Exp(near(x[c]))*n.cpu/in.Duration, maxRate), variances[c], n.evidence[c]}
		}
	}
	return rates
}

// maxRate bounds rates, in calls a second: no guest makes so many, and sums of them stay numbers.
const maxRate = 1e18

func logRatio(a, b float64) float64 { return math.Log(a) - math.Log(b) }
