package cct_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/cct"
)

// Two runs that spend their time alike and call differently.
func TestTreeProfiles(t *testing.T) {
	run := func(f, g int) *cct.Tree[string] {
		var tree cct.Tree[string]
		for i := range 6 {
			tree.AddNew(stack("f"), f>>i&1, 1)
		}
		for i := range 3 {
			tree.AddNew(stack("g"), g>>i&1, 1)
		}
		return &tree
	}
	a, b := run(0b111111, 0b1), run(0b1, 0b111) // entered 6 and 1, 1 and 3 times
	if got := cct.Overlap(a, b); math.Abs(got-100) > 1e-9 {
		t.Errorf("contexts overlap by %v, want 100", got)
	}
	if got, want := cct.Overlap(a.EdgeProfile(), b.EdgeProfile()), 100*(1./4+1./7); math.Abs(got-want) > 1e-9 {
		t.Errorf("edges overlap by %v, want %v", got, want)
	}
	if got, want := cct.Overlap(a.JointProfile(), b.JointProfile()), 100*(6./16+3./16+1./13+1./16); math.Abs(got-want) > 1e-9 {
		t.Errorf("both overlap by %v, want %v", got, want)
	}
	if got := cct.Correlation(a.EdgeProfile(), b.EdgeProfile()); math.Abs(got+1) > 1e-9 {
		t.Errorf("the correlation of edges is %v, want -1", got)
	}
}

// Against flat lists of contexts and edges, as Whaley compares them: equal if the paths from the root are.
func TestTreeProfilesRandom(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 5))
		var a, b cct.Tree[string]
		randomGuest(r, &a, 300)
		randomGuest(r, &b, 200)
		flatten := func(tree *cct.Tree[string]) (edges, joint cct.Weights[string]) {
			edges, joint = make(cct.Weights[string]), make(cct.Weights[string])
			for context, weight := range entered(tree) {
				edges[context], joint["-> "+context] = float64(weight), float64(weight)
			}
			for context, weight := range contexts(tree) {
				joint[context] = float64(weight)
			}
			return edges, joint
		}
		edgesA, jointA := flatten(&a)
		edgesB, jointB := flatten(&b)
		for _, test := range []struct {
			name      string
			got, want float64
		}{
			{"Overlap of edges", cct.Overlap(a.EdgeProfile(), b.EdgeProfile()), cct.Overlap(edgesA, edgesB)},
			{"Overlap of both", cct.Overlap(a.JointProfile(), b.JointProfile()), cct.Overlap(jointA, jointB)},
			{"Correlation of edges", cct.Correlation(a.EdgeProfile(), b.EdgeProfile()), cct.Correlation(edgesA, edgesB)},
			{"Correlation of both", cct.Correlation(a.JointProfile(), b.JointProfile()), cct.Correlation(jointA, jointB)},
		} {
			if !(math.Abs(test.got-test.want) < 1e-6) {
				t.Errorf("seed %d: %s = %v, want %v", seed, test.name, test.got, test.want)
			}
		}
	}
}

func TestTreeProfilesStopEarly(t *testing.T) {
	a, b := tree(figure6), tree(figure7a)
	a.AddNew(stack("X"), 1, 1)
	b.AddNew(stack("Y"), 1, 1)
	n := 0
	for range a.JointProfile().Beside(b.JointProfile()) {
		n++
	}
	for stop := range n {
		left := stop
		for range a.JointProfile().Beside(b.JointProfile()) {
			if left--; left < 0 {
				break
			}
		}
	}
}

// A tree is in proportion to itself twice, and an empty one has nothing in common with any.
func TestTreeProfilesOfItself(t *testing.T) {
	var tree, empty cct.Tree[string]
	randomGuest(rand.New(rand.NewPCG(1, 6)), &tree, 300)
	double := cct.Map(&tree, func(key string) []string { return []string{key} })
	double.Merge(&tree)
	for name, got := range map[string]float64{
		"edges":        cct.Overlap(tree.EdgeProfile(), double.EdgeProfile()),
		"both":         cct.Overlap(tree.JointProfile(), double.JointProfile()),
		"correlations": 100 * cct.Correlation(tree.JointProfile(), double.JointProfile()),
		"none":         cct.Overlap(empty.JointProfile(), empty.JointProfile()),
		"nothing":      100 + cct.Overlap(empty.EdgeProfile(), tree.EdgeProfile()),
	} {
		if math.Abs(got-100) > 1e-9 {
			t.Errorf("%s: %v, want 100", name, got)
		}
	}
}
