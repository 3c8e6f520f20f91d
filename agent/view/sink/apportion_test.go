package sink

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestApportion(t *testing.T) {
	for _, test := range []struct {
		name    string
		weights []float64
		want    []int64
	}{
		{"whole", []float64{3, 0, 1}, []int64{3, 0, 1}},
		{"largest remainder", []float64{2.6, 1.5, 0.9}, []int64{3, 1, 1}},
		{"first of equals", []float64{0.5, 0.5, 0.5, 0.5}, []int64{1, 1, 0, 0}},
		{"heavy and many light", []float64{1000, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1},
			[]int64{1000, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
		{"less than one", []float64{0.2, 0.2}, []int64{0, 0}},
		{"huge", []float64{1 << 62, 0.75}, []int64{1 << 62, 0}},
		{"nothing", nil, []int64{}},
	} {
		got, err := apportion(test.weights)
		if err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%s: apportion = %v, %v, want %v", test.name, got, err, test.want)
		}
	}
}

func TestApportionRefuses(t *testing.T) {
	for _, weights := range [][]float64{{math.NaN()}, {math.Inf(1)}, {-1}, {1 << 62, 1 << 62}} {
		if got, err := apportion(weights); got != nil || err == nil {
			t.Errorf("apportion(%v) = %v, %v, want an error", weights, got, err)
		}
	}
}

func TestApportionKeepsSum(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 2))
		weights, exact := make([]float64, r.IntN(100)), 0.0
		for i := range weights {
			weights[i] = math.Exp(10*r.Float64() - 3)
			exact += weights[i]
		}
		whole, err := apportion(weights)
		if err != nil {
			t.Fatal(err)
		}
		var sum int64
		for i, n := range whole {
			sum += n
			if math.Abs(float64(n)-weights[i]) >= 1 {
				t.Errorf("%v became %d", weights[i], n)
			}
		}
		if sum != int64(math.Round(exact)) {
			t.Errorf("seed %d: the sum is %d, want %v", seed, sum, math.Round(exact))
		}
	}
}
