package cct_test

import (
	"cmp"
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/cct"
)

// A tree takes stack samples, innermost frame first. Hot sums them up by method.
func Example() {
	var tree cct.Tree[string]
	tree.Add([]string{"parse", "load", "main"}, 3)
	tree.Add([]string{"read", "load", "main"}, 1)
	tree.Add([]string{"parse", "main"}, 1)
	fmt.Println(tree.Len(), "contexts, weight", tree.Total())
	for _, e := range cct.Hot(&tree, func(method string) string { return method }) {
		fmt.Printf("%-6s self %d, total %d\n", e.Key, e.Self, e.Total)
	}
	// Output:
	// 5 contexts, weight 5
	// parse  self 4, total 4
	// read   self 1, total 1
	// main   self 0, total 5
	// load   self 0, total 4
}

// Walk visits a tree from the outermost frames inwards, here the heaviest first.
func ExampleTree_Walk() {
	var tree cct.Tree[string]
	tree.Add([]string{"read", "load", "main"}, 1)
	tree.Add([]string{"parse", "load", "main"}, 3)
	totals := tree.Totals()
	tree.Walk(tree.Heaviest(totals, cmp.Compare[string]), func(id cct.NodeID, n cct.Node[string]) bool {
		if id != cct.Root {
			fmt.Println(totals[id], tree.Stack(id))
		}
		return true
	})
	// Output:
	// 4 [main]
	// 4 [load main]
	// 3 [parse load main]
	// 1 [read load main]
}

// A graph has the calls: which caller calls which callee where, and how often.
func ExampleGraph() {
	type edge = cct.Edge[string, int] // the call site is a bytecode index
	var graph cct.Graph[string, int]
	graph.Add(edge{"main", 4, "load"}, 10)
	graph.Add(edge{"load", 9, "parse"}, 30)
	graph.Add(edge{"load", 9, "read"}, 2)
	for _, e := range graph.Hottest(func(a, b edge) int { return cmp.Compare(a.Callee, b.Callee) }) {
		fmt.Printf("%s@%d -> %s: %.0f\n", e.Caller, e.Site, e.Callee, e.Weight)
	}
	// Output:
	// load@9 -> parse: 30
	// main@4 -> load: 10
	// load@9 -> read: 2
}

// Overlap compares the shares of two profiles. Their totals do not matter.
func ExampleOverlap() {
	exact := cct.Weights[string]{"parse": 600, "read": 300, "write": 100}
	sampled := cct.Weights[string]{"parse": 7, "read": 3}
	fmt.Printf("%.0f of 100\n", cct.Overlap(exact, sampled))
	// Output: 90 of 100
}
