package estimate

import (
	"container/heap"
	"math"
)

// spread returns the variance of every code's rate if those of some are known: of the best way there along the links,
// as each adds its own (Dijkstra, 1959). from is the code that the way begins at, VM if there is none.
func (n *network) spread(start []float64) (variance []float64, from []CodeID) {
	variance, from = make([]float64, len(start)), make([]CodeID, len(start))
	links := make([][]int32, len(start))
	for i := range n.links {
		if l := &n.links[i]; l.firm() {
			links[l.from] = append(links[l.from], int32(i))
			links[l.to] = append(links[l.to], int32(i))
		}
	}
	q := &queue{}
	for c, v := range start {
		variance[c], from[c] = v, VM
		if !math.IsInf(v, 1) {
			from[c] = CodeID(c)
			heap.Push(q, step{CodeID(c), v})
		}
	}
	for q.Len() > 0 {
		s := heap.Pop(q).(step)
		if s.variance > variance[s.code] {
			continue
		}
		for _, i := range links[s.code] {
			l := &n.links[i]
			next := l.to
			if next == s.code {
				next = l.from
			}
			if v := s.variance + n.variance(l); v < variance[next] {
				variance[next], from[next] = v, from[s.code]
				heap.Push(q, step{next, v})
			}
		}
	}
	return variance, from
}

// A step is a code on the way, and the variance there.
type step struct {
	code     CodeID
	variance float64
}

// A queue has the least variance first (container/heap).
type queue []step

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].variance < q[j].variance }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(s any)        { *q = append(*q, s.(step)) }
func (q *queue) Pop() any {
	last := len(*q) - 1
	s := (*q)[last]
	*q = (*q)[:last]
	return s
}
