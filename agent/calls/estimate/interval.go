package estimate

import (
	"math"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"
)

// scaleVariance is that of the logarithm of what the time of all calls is off by together, on one machine and in one program:
// prologues that are seen more or less often than where edgeTime comes from make all rates too high or too low.
const scaleVariance = 0.5

// variances are those of unknowns, given the weights that solve ended with. +Inf: nothing is said of the unknown.
func variances(x []float64, equations []equation) []float64 {
	unknowns := len(x)
	all := precisions(unknowns, equations, func(e *equation) bool { return e.bound == about })
	counted := precisions(unknowns, equations, func(e *equation) bool { return e.bound == about && e.evidence != Time })
	for i := range all {
		byTime := 1 - counted[i]/all[i] // part of what is known
		if all[i] = 1/all[i] + scaleVariance*byTime*byTime; math.IsNaN(all[i]) {
			all[i] = math.Inf(1)
		}
	}
	return all
}

// messageRounds is how far information travels in precisions: most codes are a few calls from one that was listened to.
const messageRounds = 12

// precisions are the inverse variances of unknowns by the equations that are to count: marginal ones by Gaussian belief
// propagation (Pearl, Probabilistic Reasoning in Intelligent Systems, 1988, section 4.3). They are exact where the equations
// make a tree; where they make loops, information that comes round counts twice and precisions are too high (Weiss and
// Freeman, Neural Computation 13, 2001).
func precisions(unknowns int, equations []equation, count func(*equation) bool) []float64 {
	type message struct {
		a, b     CodeID
		weight   float64
		toA, toB float64 // precision that one end has from the other
	}
	precision := make([]float64, unknowns)
	var pairs []message
	for i := range equations {
		switch e := &equations[i]; {
		case e.weight <= 0 || !count(e):
		case e.from == VM, e.evidence == Time: // what the scale adds is in scaleVariance
			precision[e.to] += e.weight
		default:
			pairs = append(pairs, message{a: e.to, b: e.from, weight: e.weight})
		}
	}
	alone := slices.Clone(precision)
	for range messageRounds {
		for i := range pairs {
			p := &pairs[i]
			// What an end knows without this equation, through it.
			a, b := max(precision[p.a]-p.toA, 0), max(precision[p.b]-p.toB, 0)
			p.toA, p.toB = p.weight*b/(p.weight+b), p.weight*a/(p.weight+a)
		}
		copy(precision, alone)
		for i := range pairs {
			precision[pairs[i].a] += pairs[i].toA
			precision[pairs[i].b] += pairs[i].toB
		}
	}
	return precision
}

// widest bounds the factor of an interval: what is not known at all.
const widest = 1e6

// factor is by how much a rate may be higher or lower, in 95 of 100 cases, whose logarithm has that variance.
func factor(variance float64) float64 {
	const t95 = 2.57                                          // of Student's t with five degrees of freedom: profiles that are wrong make long tails
	if f := math.Exp(t95 * math.Sqrt(variance)); f < widest { // not if it is NaN
		return f
	}
	return widest
}

// shareVariance is that of the logarithm of a share of a code's entries.
func (n *network) shareVariance(to CodeID, part float64) float64 {
	if part >= onlyCaller {
		return 0
	}
	part = max(part, 1e-9)
	return (1-part)/part/(n.spent[to].samples+profileWeight) + smallShare*math.Log(part)*math.Log(part)
}

// siteVariance is that of the logarithm of what profiles say of a site that is executed so often for each invocation.
func siteVariance(c *profile.Credibility, perCall float64) float64 {
	variance := profileVariance
	if c.Comparisons >= minComparisons {
		variance += c.Error * c.Error
	}
	if perCall > 0 {
		rare := max(0, seldom-math.Log(perCall))
		variance += rareness * rare * rare
	}
	return variance
}
