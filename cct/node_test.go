package cct_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/cct"
)

func TestZeroTree(t *testing.T) {
	var tree cct.Tree[string]
	if tree.Len() != 0 || tree.Total() != 0 || tree.Overflow() != 0 {
		t.Errorf("Len, Total, Overflow = %d, %d, %d", tree.Len(), tree.Total(), tree.Overflow())
	}
	if got := maps.Collect(tree.Nodes()); len(got) != 1 || got[cct.Root] != (cct.Node[string]{}) {
		t.Errorf("Nodes() = %v, want only an empty Root", got)
	}
	if got := slices.Collect(tree.Children(cct.Root)); got != nil {
		t.Errorf("Children(Root) = %v", got)
	}
	if got := tree.Stack(cct.Root); len(got) != 0 {
		t.Errorf("Stack(Root) = %v", got)
	}
	if got := tree.Totals(); !slices.Equal(got, []uint64{0}) {
		t.Errorf("Totals() = %v", got)
	}
	if got := cct.Hot(&tree, identity); len(got) != 0 {
		t.Errorf("Hot = %v", got)
	}
	var other cct.Tree[string]
	other.Merge(&tree)
	if other.Len() != 0 || cct.Map(&tree, strings.Fields).Len() != 0 {
		t.Errorf("the empty tree merges or maps into something")
	}
}

// figure12 is a part of Figure 12 of Inoue and Nakatani (OOPSLA 2009): the cache misses of two transactions of
// SPECjbb2005 in their contexts. "…" stands for callees that the figure does not show, each below 0.3% of all.
var figure12 = map[string]uint64{
	"go goManual":                        2953,
	"go goManual CustomerReport.process": 74758,
	"go goManual CustomerReport.process getCustomerByLastName":          454,
	"go goManual CustomerReport.process getCustomerByLastName …":        734,
	"go goManual DeliveryTransaction.process":                           122,
	"go goManual DeliveryTransaction.process preprocess":                74438,
	"go goManual DeliveryTransaction.process preprocess oldNewOrders":   780,
	"go goManual DeliveryTransaction.process preprocess oldNewOrders …": 103,
	"go goManual DeliveryTransaction.process preprocess oldOrders":      691,
	"go goManual DeliveryTransaction.process preprocess oldOrders …":    299,
	"go goManual DeliveryTransaction.process preprocess …":              593,
	"go goManual DeliveryTransaction.process …":                         54,
}

func TestTotalsFigure12(t *testing.T) {
	tree := tree(figure12)
	totals := tree.Totals()
	got := make(map[string]uint64)
	for id, n := range tree.Nodes() {
		got[n.Key] = totals[id]
	}
	// The "d:" column of the figure.
	for method, want := range map[string]uint64{
		"CustomerReport.process":      75946,
		"getCustomerByLastName":       1188,
		"DeliveryTransaction.process": 77080,
		"preprocess":                  76904,
		"oldNewOrders":                883,
		"oldOrders":                   990,
	} {
		if got[method] != want {
			t.Errorf("%s and its descendants weigh %d, want %d", method, got[method], want)
		}
	}
	if totals[cct.Root] != tree.Total() {
		t.Errorf("Root weighs %d, the tree %d", totals[cct.Root], tree.Total())
	}
}

func TestNodesStopsEarly(t *testing.T) {
	tree := tree(figure6)
	n := 0
	for range tree.Nodes() {
		if n++; n == 2 {
			break
		}
	}
	for range tree.Children(cct.Root) {
		break
	}
}

// Every node is its parent's child, and is a child once.
func TestChildrenAreNodes(t *testing.T) {
	eachRandomTree(t, func(t *testing.T, _ *rand.Rand, tree *cct.Tree[string], _ map[string]uint64) {
		seen := make(map[cct.NodeID]int)
		for id := range tree.Nodes() {
			for child := range tree.Children(id) {
				seen[child]++
				if n := tree.Node(child); n.Parent != id || n.Depth != tree.Node(id).Depth+1 {
					t.Errorf("node %d = %+v is a child of %d", child, n, id)
				}
			}
		}
		for id, n := range seen {
			if n != 1 {
				t.Errorf("node %d is a child %d times", id, n)
			}
		}
		if len(seen) != tree.Len() {
			t.Errorf("%d of %d nodes are children", len(seen), tree.Len())
		}
	})
}
