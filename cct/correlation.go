package cct

import "math"

// Correlation says how well the weights in one profile predict those in another, from -1 to 1: the covariance of the
// two weights of each thing, divided by the product of their standard deviations, over all things that have a weight
// in either profile. 1 means that all weights are in proportion, whatever the totals. It is NaN where it has no value:
// if the weights of one profile do not vary, or there are fewer than two things.
//
// Whaley's precision of a profiler ("A Portable Sampling-Based Profiler for Java Virtual Machines", Java Grande 2000)
// is the correlation of the profiles of two runs: of the hits of methods, or of nodes and edges of calling context
// trees. A few heavy things decide it, where Overlap counts what every one contributes.
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
	// The weights are taken as shares, whose squares cannot overflow. The mean of shares is 1/things.
	mean := 1 / things
	var covariance, varianceA, varianceB float64
	for weightA, weightB := range pairs {
		offA, offB := weightA/totalA-mean, weightB/totalB-mean
		covariance += offA * offB
		varianceA += offA * offA
		varianceB += offB * offB
	}
	// Equal weights are off their mean by rounding alone.
	const noise = 1e-24
	if min(varianceA, varianceB) < noise*mean {
		return math.NaN()
	}
	return min(max(covariance/math.Sqrt(varianceA)/math.Sqrt(varianceB), -1), 1)
}

// GeometricMean sums up the correlations of several pairs of runs, as Whaley does. It is NaN without any, or if one is
// negative or NaN.
func GeometricMean(correlations ...float64) float64 {
	var logarithms float64 // their product may be too small for a number
	for _, c := range correlations {
		if !(c >= 0) {
			return math.NaN()
		}
		logarithms += math.Log(c)
	}
	return math.Exp(logarithms / float64(len(correlations)))
}
