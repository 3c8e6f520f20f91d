package fold

import (
	"math"
	"slices"
	"testing"
)

func TestDivide(t *testing.T) {
	for _, c := range []struct {
		shares []float64
		weight uint64
		want   []uint64
	}{
		{[]float64{1}, 7, []uint64{7}},
		{[]float64{0.75, 0.25}, 8, []uint64{6, 2}},
		{[]float64{0.5, 0.5}, 1, []uint64{1, 0}},
		{[]float64{0.5, 0.3, 0.2}, 4, []uint64{2, 1, 1}},
		{[]float64{1. / 3, 1. / 3, 1. / 3}, 1 << 40, []uint64{1<<40/3 + 1, 1 << 40 / 3, 1 << 40 / 3}},
		{[]float64{1, 0}, 3, []uint64{3, 0}},
		{[]float64{0.5, 0.5}, 0, []uint64{0, 0}},
		{[]float64{0.5, 0.5}, math.MaxUint64, nil},
		{[]float64{0.999999, 0.999999}, 1000, nil}, // which do not sum to 1
		{[]float64{0.1, 0.1}, 1000, nil},
	} {
		places := make([]place, len(c.shares))
		for i, s := range c.shares {
			places[i].share = s
		}
		parts := divide(c.weight, places)
		var sum uint64
		for _, n := range parts {
			sum += n
		}
		if c.want != nil && !slices.Equal(parts, c.want) || sum != c.weight {
			t.Errorf("%d by %v: %v, want %v", c.weight, c.shares, parts, c.want)
		}
	}
	// After any number of weights no place is owed more than rounding: less than one for each other place.
	places := []place{{share: 0.6}, {share: 0.3}, {share: 0.08}, {share: 0.02}}
	given := make([]uint64, len(places))
	var total uint64
	for i := range uint64(1000) {
		weight := i*i%3 + i/500
		total += weight
		var sum uint64
		for j, n := range divide(weight, places) {
			given[j] += n
			sum += n
		}
		if sum != weight {
			t.Fatalf("weight %d: parts sum to %d", weight, sum)
		}
		for j, p := range places {
			if owed := p.share*float64(total) - float64(given[j]); math.Abs(owed) >= float64(len(places)) || math.Abs(owed-p.owed) > 1e-6 {
				t.Fatalf("after %d: place %d was given %d, is owed %g, and %g is noted", total, j, given[j], owed, p.owed)
			}
		}
	}
}
