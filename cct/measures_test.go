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
		// Section 6.1: callbacks from native code that lose their context put whole subtrees under
		// the root.
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
		// Figure 1 of Arnold and Grove: a timer nearly always samples M on top of main, and hardly
		// ever its two calls.
		{"the timer's view of figure 1", map[string]float64{"main M": 96, "M 1 call_1": 3, "M 2 call_2": 1},
			map[string]float64{"main M": 2, "M 1 call_1": 49, "M 2 call_2": 49}, 6},
		{"same shares", map[string]float64{"M 1 f": 1, "M 2 g": 3}, map[string]float64{"M 1 f": 0.5, "M 2 g": 1.5},
			100},
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

// Graphs and trees pair the same weights as flat lists of edges and contexts.
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

// Compared with flat lists of contexts, which are equal if the paths from the root are.
func TestTreeProfilesRandom(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 5))
		var a, b cct.Tree[string]
		randomGuest(r, &a, 300)
		randomGuest(r, &b, 200)
		flatten := func(tree *cct.Tree[string]) cct.Weights[string] {
			flat := make(cct.Weights[string])
			for context, weight := range contexts(tree) {
				flat[context] = float64(weight)
			}
			return flat
		}
		flatA, flatB := flatten(&a), flatten(&b)
		if got, want := cct.Overlap(&a, &b), cct.Overlap(flatA, flatB); !(math.Abs(got-want) < 1e-6) {
			t.Errorf("seed %d: Overlap = %v, want %v", seed, got, want)
		}
		if got, want := cct.Correlation(&a, &b), cct.Correlation(flatA, flatB); !(math.Abs(got-want) < 1e-6) {
			t.Errorf("seed %d: Correlation = %v, want %v", seed, got, want)
		}
	}
}

func TestTreeProfilesStopEarly(t *testing.T) {
	a, b := tree(figure6), tree(figure7a)
	a.AddNew(stack("X"), 1, 1)
	b.AddNew(stack("Y"), 1, 1)
	n := 0
	for range a.Beside(b) {
		n++
	}
	for stop := range n {
		left := stop
		for range a.Beside(b) {
			if left--; left < 0 {
				break
			}
		}
	}
}

// A tree is in proportion to twice itself, and an empty one has nothing in common with any.
func TestTreeProfilesOfItself(t *testing.T) {
	var tree, empty cct.Tree[string]
	randomGuest(rand.New(rand.NewPCG(1, 6)), &tree, 300)
	double := cct.Map(&tree, func(key string) []string { return []string{key} })
	double.Merge(&tree)
	for name, got := range map[string]float64{
		"contexts":     cct.Overlap(&tree, double),
		"correlations": 100 * cct.Correlation(&tree, double),
		"none":         cct.Overlap(&empty, &empty),
		"nothing":      100 + cct.Overlap(&empty, &tree),
	} {
		if math.Abs(got-100) > 1e-9 {
			t.Errorf("%s: %v, want 100", name, got)
		}
	}
}
