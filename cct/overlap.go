package cct

import "iter"

// Overlap says how much of the weight of two profiles lies in the same things: the sum over all things that both have
// of the smaller of the two shares, from 0 to 100. Profiles with the same shares overlap by 100 whatever their totals;
// so do two empty ones, and an empty one overlaps by 0 with any other.
//
// Of graphs this is the accuracy metric of Arnold and Grove (CGO 2005), section 6.2, over (caller, call site, callee).
// Of trees it is the overlap percentage of Moret, Binder and Villazón, "CCCP: Complete Calling Context Profiling in
// Virtual Execution Environments" (PEPM 2009), section 6.1, over whole call stacks. There the weight is a number of
// calls; here it is what the profiles count.
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
