package cct

import (
	"cmp"
	"iter"
	"slices"
)

// An Edge of a dynamic call graph: a caller, the site of the call in it, and the callee (Arnold & Grove, CGO 2005,
// section 2). M identifies a method, S a call site within its caller.
type Edge[M, S comparable] struct {
	Caller M
	Site   S
	Callee M
}

// A Graph is a dynamic call graph: a multigraph of the calls that were seen, each edge with a weight, which is a number
// of calls or an estimate of it. The zero value is empty and ready to use. One goroutine may add while nobody reads;
// any number may read while nobody adds.
type Graph[M, S comparable] struct {
	// Limit bounds the edges; 0 means DefaultLimit.
	Limit int

	edges    map[Edge[M, S]]float64
	total    float64
	overflow float64
}

// Add adds weight, which must not be negative, to an edge. If the graph is full and the edge is new, the weight
// counts as overflow, and Add returns false.
func (g *Graph[M, S]) Add(e Edge[M, S], weight float64) bool {
	if g.edges == nil {
		g.edges = map[Edge[M, S]]float64{}
	}
	_, known := g.edges[e]
	if !known && len(g.edges) >= g.limit() {
		g.overflow += weight
		return false
	}
	g.edges[e] += weight
	g.total += weight
	return true
}

func (g *Graph[M, S]) limit() int {
	if g.Limit > 0 {
		return g.Limit
	}
	return DefaultLimit
}

// Len returns the number of edges.
func (g *Graph[M, S]) Len() int { return len(g.edges) }

// Total returns the weight of all edges.
func (g *Graph[M, S]) Total() float64 { return g.total }

// Overflow returns the weight that was refused because the graph was full.
func (g *Graph[M, S]) Overflow() float64 { return g.overflow }

// Weight returns the weight of an edge, 0 if it was never added.
func (g *Graph[M, S]) Weight(e Edge[M, S]) float64 { return g.edges[e] }

// Edges visits every edge with its weight, in no particular order.
func (g *Graph[M, S]) Edges() iter.Seq2[Edge[M, S], float64] {
	return func(yield func(Edge[M, S], float64) bool) {
		for e, w := range g.edges {
			if !yield(e, w) {
				return
			}
		}
	}
}

// A WeightedEdge is an edge of a graph with its weight.
type WeightedEdge[M, S comparable] struct {
	Edge[M, S]
	Weight float64
}

// Hottest returns every edge, the heaviest first and equally heavy ones as compare orders them. Use it where output
// must not depend on the order of a map.
func (g *Graph[M, S]) Hottest(compare func(a, b Edge[M, S]) int) []WeightedEdge[M, S] {
	edges := make([]WeightedEdge[M, S], 0, len(g.edges))
	for e, w := range g.edges {
		edges = append(edges, WeightedEdge[M, S]{e, w})
	}
	slices.SortFunc(edges, func(a, b WeightedEdge[M, S]) int {
		return cmp.Or(cmp.Compare(b.Weight, a.Weight), compare(a.Edge, b.Edge))
	})
	return edges
}

// Callees returns how often each method is called: the weight of all edges that end there.
func (g *Graph[M, S]) Callees() Weights[M] {
	return g.weights(func(e Edge[M, S]) M { return e.Callee })
}

// Callers returns how many calls each method makes itself: the weight of all edges that begin there.
func (g *Graph[M, S]) Callers() Weights[M] {
	return g.weights(func(e Edge[M, S]) M { return e.Caller })
}

func (g *Graph[M, S]) weights(of func(Edge[M, S]) M) Weights[M] {
	sums := make(Weights[M])
	for e, w := range g.edges {
		sums[of(e)] += w
	}
	return sums
}
