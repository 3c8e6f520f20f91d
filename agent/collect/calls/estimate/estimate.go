// Package estimate estimates how often calls are made in a process whose calls cannot be counted:
// from timer samples, from the VM's own counters, and from short watches of breakpoints.
//
//	result := estimate.Estimate(in, estimate.Options{Logical: true})
//	for _, request := range estimate.Plan(in, result, budget) { … } // what to listen to next
//
// Samples show where time goes, and nearly how it divides among the callers of a method. How often
// a method is called does not follow from them, as a call may take any time. (Whaley's partial
// stacks and Arnold & Grove's counters, CGO 2005, start from the same fact.) Other facts help:
//
//   - The VM counts how often it takes each branch, and so how much bytecode a call executes. What
//     that takes is known within a factor of a few, though not for single methods.
//   - The time in prologues and epilogues is about the same for all calls of hot code. For single
//     methods this is wrong by a factor of two or three. For rarely called ones, whose code is not
//     in the caches, the time is much longer.
//   - The VM counts each call of a method while it interprets it, or runs code of its profiling
//     tiers. The executions of a site per invocation are usually exact for a method that always
//     does the same; for others they describe the start of the program. The products along an
//     inline chain give the physical calls, and the inlined calls, per entry of the caller's code.
//   - Code that counts shows how often it makes each call in the window, whatever code it calls.
//   - A loop that runs for ever makes its calls in the same proportion all the time.
//   - The calls that compiled code makes can be read from it, even those that no sample shows; all other calls that
//     profiles count were inlined.
//   - A breakpoint on a rarely called method counts its calls for some milliseconds; no hits bound the rate.
//   - Breakpoints on a caller and its callee at once show how often one calls the other, however hot they are.
//
// All of them are equations between logarithms of rates, each with a variance: "this is about
// that", or "this exceeds that by so much". The estimate is the most likely solution of all of
// them. Errors have Student's t distribution, as each kind of equation is sometimes far off: see
// equation. How the entries of a code divide among its callers depends on the callers' rates, so
// that both are computed in alternation: see network.divide.
//
// The package is pure arithmetic: it reads nothing, keeps no state, and returns the same result for
// the same input.
package estimate

import (
	"math"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// Options select what to estimate. The zero value is the physical call graph: calls from code of
// one method to code of another.
type Options struct {
	// Logical adds the calls that were inlined.
	Logical bool
	// Depth bounds how deep calls are followed into methods that were inlined without a trace in
	// the code. 0 means DefaultDepth.
	Depth int
}

// DefaultDepth is deeper than compilers inline.
const DefaultDepth = 16

// Estimate returns the most likely call graph. Its cost is linear in the edges and codes of the
// input.
func Estimate(in *Input, options Options) *Result {
	if !in.measured() {
		return &Result{Credibility: profile.Credibility{Error: math.NaN(), Why: "no time was observed"}}
	}
	whole, in := in, in.splitLoops()
	frequencies := newFrequencies(in.Methods)
	n := newNetwork(in, frequencies)
	n.weighWork(in, frequencies)
	h := combine(in)
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
	in.joinLoops(calls)
	whole.useCounters(n, calls, options.Logical)
	calls.join()
	r.Calls = calls.sorted()
	return r
}

// measured reports whether the input covers any time.
func (in *Input) measured() bool {
	for _, seconds := range []float64{in.Duration, in.Period} {
		if !(seconds > 0) || !finite(seconds) {
			return false
		}
	}
	return sensible(in.HitCost) && sensible(in.CPU)
}

// solve computes the logarithms of rates, in calls per second of CPU time, so that samples and
// windows are about the same time, whatever else runs on the machine. Shares depend on rates and
// rates on shares: a few rounds of both are enough. In the first rounds all variances are larger,
// so that no equation counts as far off before the others have been read. The second result is the
// variances of x.
func (n *network) solve(in *Input, h *observations, profiles bool) (x, spread []float64) {
	const (
		outer, inner   = 8, 6
		gentle, softer = 3, 4. // rounds with larger variances, and by how much in each
	)
	tally := newTally(in, n)
	// Breakpoints alone observe rarely called code, whose time does not calibrate that of hot code.
	// Counts reach hot code through the profiles, if these are used.
	learn := profiles && len(tally) > 0
	x = make([]float64, n.unknowns)
	for c := range n.spent {
		x[c] = n.spent[c].guess(in.Period/n.cpu, bodyTime)
	}
	for c, output := range n.output {
		x[output] = x[c]
	}
	observed := h.equations()
	var all []equation
	for round := range outer {
		n.divide(x, round > 0)
		all = append(timed(in, n, x, learn, all[:0]), observed...)
		for i := range all {
			all[i].value = near(all[i].value)
		}
		all = tally.equations(x, n.equations(all))
		solve(x, all, max(1, math.Pow(softer, float64(gentle-round))), inner)
	}
	n.divide(x, true)
	n.settle(x, all)
	return x, variances(x, all, n.edges(x, in), n.worked(x, in))
}

// settle records for each code the evidence that its rate mostly follows from. Measurements of the
// code itself come first: links to others are often stronger, but only carry on measurements made
// elsewhere.
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

// rates returns the rates of codes that were sampled, or that take part in a call.
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
		if active[c] && in.has(CodeID(c)) {
			rates[c] = Rate{min(math.Exp(near(x[c]))*n.cpu/in.Duration, maxRate), variances[c], n.evidence[c]}
		}
	}
	return rates
}

// maxRate bounds rates, in calls a second: no program makes so many, and sums of them stay finite.
const maxRate = 1e18

func logRatio(a, b float64) float64 { return math.Log(a) - math.Log(b) }
