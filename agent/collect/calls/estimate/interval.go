package estimate

import (
	"math"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// scaleVariance is the variance of the logarithm of the error that all rates from the time of calls
// share, on one machine and in one program, however many samples there are. If prologues take more
// or less time than where edgeTime was measured, all rates are too high or too low.
const scaleVariance = 0.5

// variances returns the variances of unknowns, given the weights that solve ended with, and edges,
// the information of all samples in prologues and epilogues together. Few samples are an error that
// all rates from time share, which does not average away. +Inf: nothing is known.
func variances(x []float64, equations []equation, edges, worked float64) []float64 {
	unknowns := len(x)
	common := scaleVariance + 1/(edges+1/programVariance)
	if worked > 0 {
		// They may be about different code, so that one does not confirm the other.
		common = min(common, workerVariance+1/worked)
	}
	all := precisions(unknowns, equations, func(e *equation) bool { return e.bound == about })
	counted := precisions(unknowns, equations, func(e *equation) bool { return e.bound == about && e.evidence != Time })
	for i := range all {
		byTime := 1 - counted[i]/all[i] // share of the information
		if all[i] = 1/all[i] + common*byTime*byTime; math.IsNaN(all[i]) {
			all[i] = math.Inf(1)
		}
	}
	return all
}

// messageRounds is how far information travels in precisions: most codes are a few calls away from
// one with breakpoints.
const messageRounds = 12

// precisions returns the inverse variances of unknowns by the equations that count selects: the
// marginal ones by Gaussian belief propagation (Pearl, Probabilistic Reasoning in Intelligent
// Systems, 1988, section 4.3). They are exact if the equations form a tree; with loops, information
// that returns is counted twice and precisions are too high (Weiss and Freeman, Neural Computation
// 13, 2001).
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
		case e.from == VM, e.evidence == Time: // scaleVariance covers the error of the scale
			precision[e.to] += e.weight
		default:
			pairs = append(pairs, message{a: e.to, b: e.from, weight: e.weight})
		}
	}
	alone := slices.Clone(precision)
	for range messageRounds {
		for i := range pairs {
			p := &pairs[i]
			// Each end sends the other what it knows without this equation.
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

// widest bounds the factor of an interval: it stands for a rate that is not known at all, whose
// call is unmeasured.
const widest = 1e6

// factor returns by how much a rate may be higher or lower, in 95 of 100 cases, if its logarithm
// has that variance.
func factor(variance float64) float64 {
	// t95 is a quantile of Student's t with five degrees of freedom: profiles that are wrong make
	// long tails.
	const t95 = 2.57
	if f := math.Exp(t95 * math.Sqrt(variance)); f < widest { // false for NaN, too
		return f
	}
	return widest
}

// shareVariance is the variance of the logarithm of a share of a code's entries.
func (n *network) shareVariance(to CodeID, part float64) float64 {
	if part >= onlyCaller {
		return 0
	}
	part = max(part, 1e-9)
	return (1-part)/part/(n.spent[to].samples+profileWeight) + smallShare*math.Log(part)*math.Log(part)
}

// siteVariance is the variance of the logarithm of a profile's count at a site with that many
// executions per invocation.
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
