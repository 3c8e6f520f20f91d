package cct

import (
	"cmp"
	"iter"
	"slices"
)

// An Edge of a dynamic call graph: a caller, the site of the call in it, and the callee (Arnold &
// Grove, CGO 2005, section 2). M identifies a method, S a call site within its caller.
type Edge[M, S comparable] struct {
	Caller M
	Site   S
	Callee M
}

// A Graph is a dynamic call graph: a multigraph of the observed calls. The weight of an edge is a
// number of calls or an estimate of it. The zero value is empty and ready to use. One goroutine may
// add while nobody reads; any number may read while nobody adds.
type Graph[M, S comparable] struct {
	// Limit bounds the edges; 0 means DefaultLimit.
	Limit int

	edges    map[Edge[M, S]]float64
	total    float64
	overflow float64
}

// Add adds weight, which must not be negative, to an edge. If the graph is full and the edge is
// new, the weight counts as overflow, and Add returns false.
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

// Hottest returns every edge, the heaviest first and equally heavy ones as compare orders them. Use
// it where output must not depend on the order of a map.
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

// Callees returns how often each method is called: the weight of all edges into it.
func (g *Graph[M, S]) Callees() Weights[M] {
	return g.weights(func(e Edge[M, S]) M { return e.Callee })
}

// Callers returns how many calls each method makes itself: the weight of all edges out of it.
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

// Merge adds every edge of other, which may be nil or g itself, with its weight. If there is not
// room for all, the heaviest are added.
func (g *Graph[M, S]) Merge(other *Graph[M, S]) {
	if other != nil {
		copyEdges(g, other, func(e Edge[M, S]) Edge[M, S] { return e })
	}
}

// MapGraph returns g with every edge replaced by f of it: to rename methods, or to leave out sites.
// Edges that become equal are merged and the total stays. f is called once per edge, in no
// particular order. The result has the Limit of g.
func MapGraph[M, S, N, T comparable](g *Graph[M, S], f func(Edge[M, S]) Edge[N, T]) *Graph[N, T] {
	mapped := &Graph[N, T]{Limit: g.Limit}
	copyEdges(mapped, g, f)
	return mapped
}

func copyEdges[M, S, N, T comparable](dst *Graph[N, T], src *Graph[M, S], f func(Edge[M, S]) Edge[N, T]) {
	overflow := src.overflow // dst may be src
	if len(src.edges)+len(dst.edges) <= dst.limit() {
		for e, w := range src.edges {
			dst.Add(f(e), w)
		}
	} else {
		for _, e := range src.Hottest(func(_, _ Edge[M, S]) int { return 0 }) {
			dst.Add(f(e.Edge), e.Weight)
		}
	}
	dst.overflow += overflow
}

// GuardedShare is the part of the calls at a site that a method must exceed to be considered for
// guarded inlining there: inlining behind a test that the receiver is the expected one (Arnold &
// Grove, CGO 2005, section 5.1).
const GuardedShare = 0.4

// A CallSite is a place in a caller with the distribution of its callees. A virtual call may have
// several targets.
type CallSite[M, S comparable] struct {
	Caller  M
	Site    S
	Weight  float64     // weight of all calls from there
	Targets []Target[M] // the heaviest first
}

// A Target is a method that a call site calls.
type Target[M comparable] struct {
	Callee M
	Weight float64
}

// Virtual reports whether several callees were observed at the site.
func (s *CallSite[M, S]) Virtual() bool { return len(s.Targets) > 1 }

// Share returns the fraction of the calls at the site that go to t, from 0 to 1.
func (s *CallSite[M, S]) Share(t Target[M]) float64 {
	if s.Weight == 0 {
		return 0
	}
	return t.Weight / s.Weight
}

// Guarded returns the targets that a compiler should consider for guarded inlining: those with more
// than GuardedShare of the calls, so at most two. At a site that is not Virtual, that is its only
// target.
func (s *CallSite[M, S]) Guarded() []Target[M] {
	n := 0
	for n < len(s.Targets) && s.Share(s.Targets[n]) > GuardedShare {
		n++
	}
	return s.Targets[:n:n]
}

// CallSites returns every call site of g, the heaviest first. Equally heavy ones, and equally heavy
// targets of one, are ordered as compare orders their edges.
func (g *Graph[M, S]) CallSites(compare func(a, b Edge[M, S]) int) []CallSite[M, S] {
	type place struct {
		caller M
		site   S
	}
	var (
		sites []CallSite[M, S]
		index = make(map[place]int)
	)
	for _, e := range g.Hottest(compare) {
		at := place{e.Caller, e.Site}
		i, known := index[at]
		if !known {
			i = len(sites)
			index[at] = i
			sites = append(sites, CallSite[M, S]{Caller: e.Caller, Site: e.Site})
		}
		sites[i].Weight += e.Weight
		sites[i].Targets = append(sites[i].Targets, Target[M]{e.Callee, e.Weight})
	}
	// Sites are in the order of their first edges, as sorted by compare.
	slices.SortStableFunc(sites, func(a, b CallSite[M, S]) int {
		return cmp.Or(cmp.Compare(b.Weight, a.Weight), compare(a.edge(), b.edge()))
	})
	return sites
}

// edge returns the heaviest edge of a site, which has at least one.
func (s *CallSite[M, S]) edge() Edge[M, S] { return Edge[M, S]{s.Caller, s.Site, s.Targets[0].Callee} }
