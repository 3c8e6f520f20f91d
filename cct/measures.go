package cct

import (
	"iter"
	"math"
)

// A Profile gives weights to things and can be compared with another of its kind: a *Tree weighs
// contexts, a *Graph edges of calls, Weights their keys. The measures on two profiles are defined
// on this.
type Profile[P any] interface {
	// Beside yields, for each thing with a weight in either profile, its weight here and its weight
	// there, in no particular order. Neither is negative, and one is 0 if only the other profile
	// has the thing.
	Beside(other P) iter.Seq2[float64, float64]
}

// Weights is the simplest profile: the weight of each key, none negative.
type Weights[K comparable] map[K]float64

// Beside pairs the weights of equal keys.
func (w Weights[K]) Beside(other Weights[K]) iter.Seq2[float64, float64] {
	return func(yield func(float64, float64) bool) {
		for key, weight := range w {
			if there := other[key]; (weight > 0 || there > 0) && !yield(weight, there) {
				return
			}
		}
		for key, there := range other {
			if _, here := w[key]; !here && there > 0 && !yield(0, there) {
				return
			}
		}
	}
}

// Beside pairs the weights of equal edges. Edges without room in either graph are left out.
func (g *Graph[M, S]) Beside(other *Graph[M, S]) iter.Seq2[float64, float64] {
	return Weights[Edge[M, S]](g.edges).Beside(other.edges)
}

// Beside pairs the weights of equal contexts: those with equal whole stacks. Contexts without a
// weight of their own, only descendants with one, are left out.
func (t *Tree[K]) Beside(other *Tree[K]) iter.Seq2[float64, float64] {
	return func(yield func(float64, float64) bool) {
		pair := func(here, there uint64) bool {
			return here == 0 && there == 0 || yield(float64(here), float64(there))
		}
		twins, paired := t.twins(other), make([]bool, other.nodes.len())
		for id := range t.nodes.used {
			there := uint64(0)
			if twin := twins[id]; (twin != Root || id == Root) && other.nodes.len() > 0 {
				there, paired[twin] = other.nodes.at(twin).self, true
			}
			if !pair(t.nodes.at(id).self, there) {
				return
			}
		}
		for id := range other.nodes.used {
			if !paired[id] && !pair(0, other.nodes.at(id).self) {
				return
			}
		}
	}
}

// twins returns, by NodeID of t, the same context in other: Root for none, and for Root.
func (t *Tree[K]) twins(other *Tree[K]) []NodeID {
	twins := make([]NodeID, t.nodes.len())
	if other.nodes.len() == 0 {
		return twins
	}
	for id := NodeID(1); id < t.nodes.used; id++ {
		n := t.nodes.at(id)
		// If other lacks a context, it lacks its descendants, too.
		if parent := twins[n.parent]; parent != Root || n.parent == Root {
			twins[id], _, _ = other.find(parent, n.key)
		}
	}
	return twins
}

// Overlap returns how much of the weight of two profiles is in the same things, from 0 to 100: the
// sum, over all things that both have, of the smaller of the two shares. Profiles with the same
// shares overlap by 100 whatever their totals. So do two empty ones, and an empty one overlaps by 0
// with any other.
//
// For graphs this is the accuracy metric of Arnold and Grove (CGO 2005), section 6.2, over (caller,
// call site, callee). For trees it is the overlap percentage of Moret, Binder and Villazón, "CCCP:
// Complete Calling Context Profiling in Virtual Execution Environments" (PEPM 2009), section 6.1,
// over whole call stacks. Their weight is a number of calls; here it is whatever the profiles
// count.
func Overlap[P Profile[P]](a, b P) float64 {
	pairs := a.Beside(b)
	totalA, totalB := totals(pairs)
	if totalA == 0 || totalB == 0 {
		if totalA == totalB {
			return 100
		}
		return 0
	}
	var sum float64
	for weightA, weightB := range pairs {
		sum += min(weightA/totalA, weightB/totalB)
	}
	return min(100*sum, 100) // shares are rounded
}

func totals(pairs iter.Seq2[float64, float64]) (totalA, totalB float64) {
	for a, b := range pairs {
		totalA += a
		totalB += b
	}
	return totalA, totalB
}

// Correlation returns how well the weights in one profile predict those in another, from -1 to 1.
// It is the covariance of the two weights of each thing, divided by the product of their standard
// deviations, over all things with a weight in either profile. 1 means that all weights are in
// proportion, whatever the totals. It is NaN if undefined: if the weights of one profile do not
// vary, or there are fewer than two things.
//
// Whaley's precision of a profiler ("A Portable Sampling-Based Profiler for Java Virtual Machines",
// Java Grande 2000) is the correlation of the profiles of two runs: of the hits of methods, or of
// nodes and edges of calling context trees. A few heavy things dominate it, while Overlap counts
// the contribution of every thing.
func Correlation[P Profile[P]](a, b P) float64 {
	pairs := a.Beside(b)
	totalA, totalB := totals(pairs)
	if totalA == 0 || totalB == 0 {
		return math.NaN()
	}
	var things float64
	for range pairs {
		things++
	}
	// The weights are converted to shares, whose squares cannot overflow. The mean of shares is
	// 1/things.
	mean := 1 / things
	var covariance, varianceA, varianceB float64
	for weightA, weightB := range pairs {
		offA, offB := weightA/totalA-mean, weightB/totalB-mean
		covariance += offA * offB
		varianceA += offA * offA
		varianceB += offB * offB
	}
	// Equal weights differ from their mean by rounding only.
	const noise = 1e-24
	if min(varianceA, varianceB) < noise*mean {
		return math.NaN()
	}
	return min(max(covariance/math.Sqrt(varianceA)/math.Sqrt(varianceB), -1), 1)
}

// GeometricMean averages the correlations of several pairs of runs, as Whaley does. It is NaN
// without any, or if one is negative or NaN.
func GeometricMean(correlations ...float64) float64 {
	var logarithms float64 // their product may underflow
	for _, c := range correlations {
		if !(c >= 0) {
			return math.NaN()
		}
		logarithms += math.Log(c)
	}
	return math.Exp(logarithms / float64(len(correlations)))
}
