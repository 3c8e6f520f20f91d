package budget

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestDivide(t *testing.T) {
	for _, c := range []struct {
		budget      float64
		needs, want []float64
	}{
		{1, nil, []float64{}},
		{1, []float64{0, 0}, []float64{0, 0}},
		{1, []float64{3}, []float64{1}},
		{6, []float64{1, 2}, []float64{2, 4}},       // enough for all: what is left over goes by need
		{6, []float64{1, 2, 9}, []float64{1, 2, 3}}, // small needs are whole
		{6, []float64{9, 2, 9}, []float64{2, 2, 2}}, // whole, and as much as the others
		{6, []float64{9, 1, 8}, []float64{2.5, 1, 2.5}},
		{6, []float64{9, math.NaN(), -1, 2}, []float64{4, 0, 0, 2}},
		{6, []float64{math.Inf(1), 2}, []float64{4, 2}},
		{0, []float64{1, 2}, []float64{0, 0}},
	} {
		if got := Divide(c.budget, c.needs); !slices.Equal(got, c.want) {
			t.Errorf("%v among %v: %v, want %v", c.budget, c.needs, got, c.want)
		}
	}
}

// Parts add up to the budget. Who needs no more than an equal part gets all of it, and who needs
// more gets more, or as much.
func TestDivideFair(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		needs, all := make([]float64, 1+rng.IntN(8)), 0.0
		for i := range needs {
			needs[i] = rng.ExpFloat64() * math.Pow(10, float64(rng.IntN(6)))
			all += needs[i]
		}
		budget := rng.ExpFloat64() * all
		parts, sum := Divide(budget, needs), 0.0
		for i, part := range parts {
			sum += part
			if equal := budget / float64(len(needs)); part < min(needs[i], equal)*(1-1e-9) {
				t.Fatalf("%v among %v: %v: part %d is less than its need and than an equal part", budget, needs, parts,
					i)
			}
			if budget < all && part > needs[i] {
				t.Fatalf("%v among %v: %v: part %d is more than is needed", budget, needs, parts, i)
			}
			for j := range parts {
				if needs[i] < needs[j] && part > parts[j]*(1+1e-9) {
					t.Fatalf("%v among %v: %v: %d needs less than %d and gets more", budget, needs, parts, i, j)
				}
			}
		}
		if math.Abs(sum-budget) > 1e-9*budget {
			t.Fatalf("%v among %v: %v, which is %v", budget, needs, parts, sum)
		}
		// More of a budget is less for nobody.
		for i, more := range Divide(2*budget, needs) {
			if more < parts[i]*(1-1e-9) {
				t.Fatalf("twice %v among %v: part %d is %v, not %v", budget, needs, i, more, parts[i])
			}
		}
	}
}
