package placement

import (
	"container/heap"
	"math"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/timing/flowgraph"
)

// paths are shortest paths between the beginnings of blocks (Dijkstra 1959). What a path costs is
// the sum of the blocks that it executes: that of its first block counts, that of its last one does
// not.
type paths struct {
	next [][]edge
}

type edge struct {
	to   int
	cost float64
}

// newPaths prepares paths along the edges of a graph, or against them: then from gives the costs of
// ways to a block.
func newPaths(g *flowgraph.Graph, against bool) *paths {
	p := &paths{next: make([][]edge, len(g.Blocks))}
	for b := range g.Blocks {
		for _, s := range g.Blocks[b].Successors {
			from, to := b, s
			if against {
				from, to = s, b
			}
			p.next[from] = append(p.next[from], edge{to, g.Blocks[b].Cost})
		}
	}
	return p
}

// from are the distances of all blocks from one. That of the block itself is the cheapest way
// around and back; +Inf if there is no way.
func (p *paths) from(b int) []float64 {
	distance := make([]float64, len(p.next))
	for i := range distance {
		distance[i] = math.Inf(1)
	}
	var q queue
	relax := func(edges []edge, at float64) {
		for _, e := range edges {
			if d := at + e.cost; d < distance[e.to] {
				distance[e.to] = d
				heap.Push(&q, edge{e.to, d})
			}
		}
	}
	relax(p.next[b], 0)
	for len(q) > 0 {
		e := heap.Pop(&q).(edge)
		if e.cost > distance[e.to] || e.to == b {
			continue // a shorter way was found, or the round is closed
		}
		relax(p.next[e.to], e.cost)
	}
	return distance
}

// A queue has the cheapest block first.
type queue []edge

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].cost < q[j].cost }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)        { *q = append(*q, x.(edge)) }
func (q *queue) Pop() any {
	old := *q
	e := old[len(old)-1]
	*q = old[:len(old)-1]
	return e
}
