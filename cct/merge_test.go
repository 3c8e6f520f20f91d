package cct_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/cct"
)

func TestMergeAddsContexts(t *testing.T) {
	eachRandomTree(t, func(t *testing.T, r *rand.Rand, a *cct.Tree[string], want map[string]uint64) {
		b, more := randomTree(r, 100)
		a.Merge(b)
		for context, weight := range more {
			want[context] += weight
		}
		if got := contexts(a); !maps.Equal(got, want) {
			t.Errorf("contexts = %v, want %v", got, want)
		}
		if !maps.Equal(contexts(b), more) {
			t.Errorf("Merge changed its argument")
		}
	})
}

func TestMergeSelfAndNil(t *testing.T) {
	tree := tree(figure6)
	tree.Merge(nil)
	tree.Merge(tree)
	for context, weight := range contexts(tree) {
		if weight != 2*figure6[context] {
			t.Errorf("%s = %d, want %d", context, weight, 2*figure6[context])
		}
	}
	if tree.Total() != 340 {
		t.Errorf("Total() = %d, want 340", tree.Total())
	}
}

func TestMergeAddsEdges(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 7))
		var a, b cct.Tree[string]
		want := randomGuest(r, &a, 300).entered
		more := randomGuest(r, &b, 300).entered
		limited := cct.Tree[string]{Limit: r.IntN(200)}
		limited.Merge(&a)
		limited.Merge(&b)
		a.Merge(&b)
		for context, n := range more {
			want[context] += n
		}
		if got := entered(&a); !maps.Equal(got, want) {
			t.Fatalf("seed %d: entered %v, want %v", seed, got, want)
		}
		for context, n := range entered(&limited) {
			if n > want[context] {
				t.Fatalf("seed %d: with little room %s was entered %d times, of %d", seed, context, n, want[context])
			}
		}
		if a.EdgeTotal() != sum(want) || limited.EdgeTotal() != sum(entered(&limited)) || limited.EdgeTotal()+
			limited.EdgeOverflow() != sum(want) {
			t.Fatalf("seed %d: EdgeTotal = %d; with little room it is %d, EdgeOverflow %d; want %d", seed,
				a.EdgeTotal(), limited.EdgeTotal(), limited.EdgeOverflow(), sum(want))
		}
		var again cct.Tree[string] // what one tree lacks is missing in the next
		again.Merge(&limited)
		if again.EdgeTotal() != limited.EdgeTotal() || again.EdgeOverflow() != limited.EdgeOverflow() ||
			again.Overflow() != limited.Overflow() {
			t.Fatalf("seed %d: EdgeTotal, EdgeOverflow, Overflow = %d, %d, %d, want %d, %d, %d", seed,
				again.EdgeTotal(), again.EdgeOverflow(), again.Overflow(),
				limited.EdgeTotal(), limited.EdgeOverflow(), limited.Overflow())
		}
		a.Merge(&a)
		if got := sum(entered(&a)); got != 2*sum(want) || a.EdgeTotal() != got {
			t.Fatalf("seed %d: merged with itself, entered %d times, EdgeTotal %d, want %d", seed, got, a.EdgeTotal(),
				2*sum(want))
		}
	}
}

// Contexts without room go to the deepest ancestor and stay there: E must not be added directly
// under A, though A has such a child.
func TestMergeIntoFullTree(t *testing.T) {
	full := cct.Tree[string]{Limit: 2}
	full.Add(stack("A E"), 1)
	full.Merge(tree(map[string]uint64{"A B E": 10, "A E": 100}))
	want := map[string]uint64{"A": 10, "A E": 101}
	if got := contexts(&full); !maps.Equal(got, want) {
		t.Errorf("contexts = %v, want %v", got, want)
	}
	if full.Overflow() != 10 || full.Total() != 111 {
		t.Errorf("Overflow, Total = %d, %d, want 10, 111", full.Overflow(), full.Total())
	}
}

// A physical frame becomes the methods that were inlined into it, or nothing. Keys list them
// innermost first.
func TestMapExpandsInlining(t *testing.T) {
	physical := tree(map[string]uint64{
		"main run":                     1,
		"main run get+checkout":        2,
		"main run get+checkout stub":   4,
		"main run get+checkout hash+g": 8,
		"main g":                       16,
		"main stub g":                  32,
	})
	logical := cct.Map(physical, func(frame string) []string {
		if frame == "stub" {
			return nil
		}
		return strings.Split(frame, "+")
	})
	want := map[string]uint64{
		"main run":                     1,
		"main run checkout get":        6,
		"main run checkout get g hash": 8,
		"main g":                       48,
	}
	if got := contexts(logical); !maps.Equal(got, want) {
		t.Errorf("contexts = %v, want %v", got, want)
	}
	if logical.Total() != physical.Total() {
		t.Errorf("Total() = %d, want %d", logical.Total(), physical.Total())
	}
}

// All frames that stand for a new frame are new. Calls of a frame that is left out are dropped:
// they are not calls of its caller.
func TestMapExpandsEdges(t *testing.T) {
	var physical cct.Tree[string]
	physical.AddNew(stack("main run get+checkout stub hash+g"), 5, 1)
	physical.AddNew(stack("main run get+checkout stub hash+g"), 2, 1)
	physical.AddNew(stack("main run get+checkout hash+g"), 1, 1)
	logical := cct.Map(&physical, func(frame string) []string {
		if frame == "stub" {
			return nil
		}
		return strings.Split(frame, "+")
	})
	want := map[string]uint64{
		"main": 1, "main run": 1, "main run checkout": 1, "main run checkout get": 1,
		"main run checkout get g": 3, "main run checkout get g hash": 3,
	}
	if got := entered(logical); !maps.Equal(got, want) {
		t.Errorf("entered %v, want %v", got, want)
	}
	if logical.EdgeTotal() != 10 || logical.EdgeOverflow() != 0 {
		t.Errorf("EdgeTotal, EdgeOverflow = %d, %d, want 10, 0", logical.EdgeTotal(), logical.EdgeOverflow())
	}
}

// If only a part of a frame's replacement has room, the frame counts as overflow, in addition to
// that part.
func TestMapEdgesIntoFullTree(t *testing.T) {
	physical := cct.Tree[string]{Limit: 2}
	physical.AddNew(stack("main b+a"), 2, 1)
	logical := cct.Map(&physical, func(frame string) []string { return strings.Split(frame, "+") })
	if got, want := entered(logical), map[string]uint64{"main": 1, "main a": 1}; !maps.Equal(got, want) {
		t.Errorf("entered %v, want %v", got, want)
	}
	if logical.EdgeTotal() != 2 || logical.EdgeOverflow() != 1 || logical.Overflow() != 1 {
		t.Errorf("EdgeTotal, EdgeOverflow, Overflow = %d, %d, %d, want 2, 1, 1", logical.EdgeTotal(),
			logical.EdgeOverflow(), logical.Overflow())
	}
}

func TestMapKeepsTotal(t *testing.T) {
	expansions := map[string][]string{"a": nil, "b": {"x", "y", "z"}, "c": {"b"}, "d": {"a", "a"}}
	eachRandomTree(t, func(t *testing.T, r *rand.Rand, tree *cct.Tree[string], _ map[string]uint64) {
		tree.Limit = r.IntN(400)
		mapped := cct.Map(tree, func(key string) []string { return expansions[key] })
		if mapped.Total() != tree.Total() || mapped.Totals()[cct.Root] != tree.Total() {
			t.Errorf("Total() = %d, nodes weigh %d, want %d", mapped.Total(), mapped.Totals()[cct.Root], tree.Total())
		}
		if mapped.Overflow() == 0 {
			for id, n := range tree.Nodes() {
				want := slices.Concat(expand(tree.Stack(id), expansions)...)
				if n.Self > 0 && contexts(mapped)[path(want)] < n.Self {
					t.Errorf("%v is not found as %v", tree.Stack(id), want)
				}
				if id > 20 { // each costs a pass
					break
				}
			}
		}
	})
}

func expand(stack []string, by map[string][]string) (expanded [][]string) {
	for _, key := range stack {
		expanded = append(expanded, by[key])
	}
	return expanded
}
