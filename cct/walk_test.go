package cct_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/cct"
)

func TestWalk(t *testing.T) {
	tree := tree(map[string]uint64{"A b": 1, "A a": 1, "A c x": 5, "A d": 0, "A e y": 3, "0": 2})
	walk := func(compare func(a, b cct.NodeID) int, skip string) (keys []string) {
		tree.Walk(compare, func(id cct.NodeID, n cct.Node[string]) bool {
			keys = append(keys, n.Key)
			return n.Key != skip
		})
		return keys
	}
	if got, want := walk(tree.Heaviest(tree.Totals(), cmp.Compare[string]), ""), []string{"A", "c", "x", "e", "y", "a",
		"b", "d", "0"}; !slices.Equal(got, want) {
		t.Errorf("heaviest first: %v, want %v", got, want)
	}
	if got, want := walk(tree.ByKey(cmp.Compare[string]), "c"), []string{"0", "A", "a", "b", "c", "d", "e",
		"y"}; !slices.Equal(got, want) {
		t.Errorf("by key without what c calls: %v, want %v", got, want)
	}
}

// Walk visits every node once, below its parent, regardless of the order of samples.
func TestWalkRandom(t *testing.T) {
	eachRandomTree(t, func(t *testing.T, _ *rand.Rand, tree *cct.Tree[string], _ map[string]uint64) {
		reversed := new(cct.Tree[string])
		for id := cct.NodeID(tree.Len()); id != cct.Root; id-- {
			reversed.Add(tree.Stack(id), tree.Node(id).Self)
		}
		order := func(tree *cct.Tree[string]) (paths []string) {
			tree.Walk(tree.Heaviest(tree.Totals(), cmp.Compare[string]), func(id cct.NodeID, _ cct.Node[string]) bool {
				paths = append(paths, path(tree.Stack(id)))
				return true
			})
			return paths
		}
		got := order(tree)
		if !slices.Equal(got, order(reversed)) {
			t.Errorf("the order of samples changes the order of the walk")
		}
		slices.Sort(got)
		if n := len(slices.Compact(got)); n != tree.Len() {
			t.Errorf("visited %d of %d contexts", n, tree.Len())
		}
	})
}
