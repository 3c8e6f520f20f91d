package cct

// Merge adds every edge of other, which may be nil or g itself, with its weight. If there is not room for all, the
// heaviest come in.
func (g *Graph[M, S]) Merge(other *Graph[M, S]) {
	if other != nil {
		copyEdges(g, other, func(e Edge[M, S]) Edge[M, S] { return e })
	}
}

// MapGraph returns the graph that g would be if every edge were replaced by f of it: methods renamed, sites left out.
// Edges that become equal are merged and the total stays. f is called once an edge, in no particular order. Limit is
// taken over from g.
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
