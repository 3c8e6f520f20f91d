package cct_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/cct"
)

func TestOverlap(t *testing.T) {
	for _, test := range []struct {
		name string
		a, b map[string]uint64
		want float64
	}{
		{"same tree", figure6, figure6, 100},
		{"same shares", map[string]uint64{"A": 1, "A B": 3}, map[string]uint64{"A": 10, "A B": 30}, 100},
		{"other shares", map[string]uint64{"A": 1, "A B": 3}, map[string]uint64{"A": 3, "A B": 1}, 50},
		{"nothing in common", map[string]uint64{"A": 1}, map[string]uint64{"B": 1}, 0},
		{"same methods, other contexts", map[string]uint64{"A B": 1}, map[string]uint64{"B A": 1}, 0},
		// Section 6.1: callbacks from native code that lose their context put whole subtrees under the root.
		{"lost context", map[string]uint64{"main": 2, "main eval native callback": 3, "main eval native callback f": 5},
			map[string]uint64{"main": 2, "callback": 3, "callback f": 5}, 20},
		{"a part is missing", map[string]uint64{"A": 1, "A B": 1, "A B C": 2}, map[string]uint64{"A": 1, "A B": 1}, 50},
		{"frameless samples count", map[string]uint64{"": 1, "A": 1}, map[string]uint64{"": 1, "B": 1}, 50},
		{"both empty", nil, nil, 100},
		{"one empty", figure6, nil, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			a, b := tree(test.a), tree(test.b)
			if got := cct.Overlap(a, b); math.Abs(got-test.want) > 1e-9 {
				t.Errorf("Overlap(a, b) = %v, want %v", got, test.want)
			}
			if got := cct.Overlap(b, a); math.Abs(got-test.want) > 1e-9 {
				t.Errorf("Overlap(b, a) = %v, want %v", got, test.want)
			}
		})
	}
}

// Against the definition, from the flat lists of contexts.
func TestOverlapRandom(t *testing.T) {
	eachRandomTree(t, func(t *testing.T, r *rand.Rand, a *cct.Tree[string], inA map[string]uint64) {
		b, inB := randomTree(r, 50)
		var want float64
		for context, weight := range inA {
			want += 100 * min(float64(weight)/float64(a.Total()), float64(inB[context])/float64(b.Total()))
		}
		if got := cct.Overlap(a, b); math.Abs(got-want) > 1e-6 {
			t.Errorf("Overlap = %v, want %v", got, want)
		}
	})
}

// Of graphs, by (caller, call site, callee).
func TestOverlapOfGraphs(t *testing.T) {
	for _, test := range []struct {
		name string
		a, b map[string]float64
		want float64
	}{
		// Figure 1 of Arnold and Grove: a timer sees M on top of main nearly always, and its two calls hardly ever.
		{"the timer's view of figure 1", map[string]float64{"main M": 96, "M 1 call_1": 3, "M 2 call_2": 1},
			map[string]float64{"main M": 2, "M 1 call_1": 49, "M 2 call_2": 49}, 6},
		{"same shares", map[string]float64{"M 1 f": 1, "M 2 g": 3}, map[string]float64{"M 1 f": 0.5, "M 2 g": 1.5}, 100},
		{"other sites", map[string]float64{"M 1 f": 1}, map[string]float64{"M 2 f": 1}, 0},
		{"other receivers", map[string]float64{"M 1 f": 3, "M 1 g": 1}, map[string]float64{"M 1 f": 3, "M 1 h": 1}, 75},
		{"the other way round", map[string]float64{"M N": 1}, map[string]float64{"N M": 1}, 0},
		{"both empty", nil, nil, 100},
		{"one empty", map[string]float64{"M N": 1}, nil, 0},
	} {
		a, b := callGraph(test.a), callGraph(test.b)
		for _, got := range []float64{cct.Overlap(a, b), cct.Overlap(b, a)} {
			if math.Abs(got-test.want) > 1e-9 {
				t.Errorf("%s: Overlap = %v, want %v", test.name, got, test.want)
			}
		}
	}
}

// Against the definition.
func TestOverlapOfRandomGraphs(t *testing.T) {
	eachRandomGraph(t, func(t *testing.T, r *rand.Rand, a *graph, inA map[edge]float64) {
		b, inB := randomGraph(r, 40)
		var want float64
		for e, weight := range inA {
			want += 100 * min(weight/a.Total(), inB[e]/b.Total())
		}
		if got := cct.Overlap(a, b); math.Abs(got-want) > 1e-6 {
			t.Errorf("Overlap = %v, want %v", got, want)
		}
	})
}
