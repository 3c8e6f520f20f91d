package cct_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/cct"
)

type hits = cct.Weights[string]

// Values that were worked out by hand from the definition.
func TestCorrelation(t *testing.T) {
	for _, test := range []struct {
		name string
		a, b hits
		want float64
	}{
		{"the same", hits{"f": 1, "g": 2, "h": 3}, hits{"f": 1, "g": 2, "h": 3}, 1},
		{"in proportion", hits{"f": 1, "g": 2, "h": 3}, hits{"f": 10, "g": 20, "h": 30}, 1},
		{"opposite", hits{"f": 1, "g": 2, "h": 3}, hits{"f": 3, "g": 2, "h": 1}, -1},
		// Off the means by (-1, 0, 1) and (0, -1, 1): covariance 1, variances 2 and 2.
		{"half", hits{"f": 1, "g": 2, "h": 3}, hits{"f": 2, "g": 1, "h": 3}, 0.5},
		{"unrelated", hits{"f": 0, "g": 2, "h": 1}, hits{"f": 1, "g": 1, "h": 4}, 0},
		// The union of keys: (3, 0), (0, 3) are off by (1.5, -1.5), (-1.5, 1.5).
		{"nothing in common", hits{"f": 3}, hits{"g": 3}, -1},
		{"a missing key is 0", hits{"f": 2, "g": 1}, hits{"f": 2, "g": 1, "h": 0}, 1},
		{"huge", hits{"f": 1e200, "g": 2e200}, hits{"f": 1e-200, "g": 2e-200}, 1},
		{"does not vary", hits{"f": 1, "g": 1, "h": 1}, hits{"f": 1, "g": 2, "h": 3}, math.NaN()},
		{"one thing", hits{"f": 1}, hits{"f": 2}, math.NaN()},
		{"one empty", hits{"f": 1, "g": 2}, nil, math.NaN()},
		{"both empty", nil, nil, math.NaN()},
	} {
		for _, got := range []float64{cct.Correlation(test.a, test.b), cct.Correlation(test.b, test.a)} {
			if math.IsNaN(got) != math.IsNaN(test.want) || math.Abs(got-test.want) > 1e-9 {
				t.Errorf("%s: Correlation = %v, want %v", test.name, got, test.want)
			}
		}
	}
}

// What a graph and a tree pair is what the flat lists of edges and contexts would.
func TestCorrelationOfGraphsAndTrees(t *testing.T) {
	eachRandomGraph(t, func(t *testing.T, r *rand.Rand, a *graph, inA map[edge]float64) {
		b, inB := randomGraph(r, 40)
		if got, want := cct.Correlation(a, b), cct.Correlation[cct.Weights[edge]](inA, inB); math.Abs(got-want) > 1e-9 {
			t.Errorf("of graphs = %v, want %v", got, want)
		}
	})
	eachRandomTree(t, func(t *testing.T, r *rand.Rand, a *cct.Tree[string], _ map[string]uint64) {
		b, _ := randomTree(r, 100)
		if got, want := cct.Correlation(a, b), cct.Correlation(flat(a), flat(b)); math.Abs(got-want) > 1e-9 {
			t.Errorf("of trees = %v, want %v", got, want)
		}
	})
}

func flat(t *cct.Tree[string]) cct.Weights[string] {
	weights := make(cct.Weights[string])
	for context, weight := range contexts(t) {
		weights[context] = float64(weight)
	}
	return weights
}

func TestGeometricMean(t *testing.T) {
	for _, test := range []struct {
		correlations []float64
		want         float64
	}{
		{[]float64{0.9}, 0.9},
		{[]float64{0.5, 0.98}, 0.7},
		{[]float64{1, 1, 0.125}, 0.5},
		{[]float64{0.9, 0}, 0},
		{[]float64{0.9, -0.1}, math.NaN()},
		{[]float64{0.9, math.NaN()}, math.NaN()},
		{nil, math.NaN()},
	} {
		got := cct.GeometricMean(test.correlations...)
		if math.IsNaN(got) != math.IsNaN(test.want) || math.Abs(got-test.want) > 1e-9 {
			t.Errorf("GeometricMean(%v) = %v, want %v", test.correlations, got, test.want)
		}
	}
}
