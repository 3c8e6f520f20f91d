package sink

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
)

// errTooLarge says that weights do not fit into 63 bits together.
var errTooLarge = errors.New("the sum is too large for the format")

// apportion rounds weights to whole numbers whose sum is the rounded sum of the weights: each
// weight is cut to a whole number, and what is missing then goes to those that lost most, of equals
// to the first (the method of the largest remainder). Each is off by less than one. It fails if a
// weight is no count, or if all do not fit into 63 bits together.
func apportion(weights []float64) ([]int64, error) {
	var sum float64
	for _, w := range weights {
		if !(w >= 0) {
			return nil, fmt.Errorf("%v is not a count", w)
		}
		sum += w
	}
	if sum >= 1<<63 {
		return nil, fmt.Errorf("%w: %g", errTooLarge, sum)
	}
	whole := make([]int64, len(weights))
	order := make([]int, len(weights)) // indexes of weights
	missing := int64(math.Round(sum))
	for i, w := range weights {
		whole[i], order[i] = int64(w), i
		missing -= whole[i]
	}
	lost := func(i int) float64 { return weights[i] - float64(whole[i]) }
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(lost(b), lost(a)) })
	// Beyond 2^53 the sum itself is rounded, hence the bounds.
	for _, i := range order[:min(max(missing, 0), int64(len(order)))] {
		whole[i]++
	}
	return whole, nil
}
