package estimate

import (
	"math"
	"testing"
)

func TestSolve(t *testing.T) {
	measured := func(c CodeID, value float64) equation {
		return equation{to: c, from: VM, value: value, variance: 0.01, freedom: hardly}
	}
	linked := func(to, from CodeID, value float64) equation {
		return equation{to: to, from: from, value: value, variance: 0.01, freedom: often}
	}
	bounded := func(c CodeID, b bound, value float64) equation {
		return equation{to: c, from: VM, value: value, variance: 1e-6, freedom: hardly, bound: b}
	}
	for name, tt := range map[string]struct {
		equations []equation
		want      []float64
	}{
		"one":             {[]equation{measured(0, 3)}, []float64{3}},
		"mean":            {[]equation{measured(0, 3), measured(0, 3.2)}, []float64{3.1}},
		"chain":           {[]equation{measured(0, 3), linked(1, 0, 2), linked(2, 1, -1)}, []float64{3, 5, 4}},
		"outlier":         {[]equation{measured(0, 3), measured(1, 3), linked(1, 0, 9)}, []float64{3, 3}},
		"at most":         {[]equation{measured(0, 3), bounded(0, atMost, 4)}, []float64{3}},
		"beyond at least": {[]equation{measured(0, 3), bounded(0, atLeast, 3.1)}, []float64{3.1}},
		"unknown":         {[]equation{measured(1, 3)}, []float64{0, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			x := make([]float64, len(tt.want))
			solve(x, tt.equations, 1, 50)
			for i := range x {
				if math.Abs(x[i]-tt.want[i]) > 0.02 {
					t.Errorf("got %.3f, want %.3f", x, tt.want)
				}
			}
		})
	}
}
