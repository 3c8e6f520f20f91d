package budget

import (
	"cmp"
	"math"
	"slices"
)

// Divide divides a budget among several that need so much each, max-min fair: the least needs are
// filled first and whole, and those that need more get equal parts of what is left, none more than
// it needs. If all needs are filled, what is left over is divided in proportion to the needs. The
// parts add up to the budget, unless nobody needs anything: then all are 0. A need that is no
// number, or less than 0, counts as 0; budget is at least 0.
func Divide(budget float64, needs []float64) (parts []float64) {
	parts = make([]float64, len(needs))
	order, all := make([]int, 0, len(needs)), 0.0
	for i, need := range needs {
		if need > 0 {
			order = append(order, i)
			parts[i] = min(need, math.MaxFloat64/float64(len(needs)))
			all += parts[i]
		}
	}
	if all <= budget {
		for _, i := range order {
			parts[i] *= budget / all
		}
		return parts
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(parts[a], parts[b]) })
	left := budget
	for n, i := range order {
		parts[i] = min(parts[i], left/float64(len(order)-n))
		left -= parts[i]
	}
	return parts
}
