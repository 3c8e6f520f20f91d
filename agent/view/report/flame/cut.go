package flame

import (
	"cmp"
	"slices"
)

// Cut returns a Graph of the heaviest nodes, about limit of them and at most two and a half times
// as many with what follows. The others become a frame [rare] of their caller, at most one each, so
// that totals stay true. Below these frames are the heaviest of the innermost methods that were
// left out, at most limit/2, so that the values of methods themselves stay true as far as possible.
// It shares what it can with f, and neither must change afterwards.
func (f *Graph) Cut(limit int) *Graph {
	if len(f.nodes)-1 <= limit {
		return f
	}
	weights := f.totals(0)
	if f.base != nil {
		base := f.totals(1)
		a, b := max(weights[0], 1), max(base[0], 1)
		for i := range weights {
			weights[i] = weights[i]/a + base[i]/b
		}
	}
	order := slices.Clone(weights[1:])
	slices.Sort(order)
	least := order[len(order)-1-limit]
	ties := limit // how many nodes of the weight least there is room for
	for _, w := range order {
		if w > least {
			ties--
		}
	}
	outer := 0 // processes and threads, which are kept if they are not most of it
	for _, n := range f.nodes[1:] {
		if k := f.frames[n.frame].kind; k == kindProcess || k == kindThread {
			outer++
		}
	}
	keep := func(at int) bool {
		if k := f.frames[f.nodes[at].frame].kind; weights[at] > least || outer <= limit/4 &&
			(k == kindProcess || k == kindThread) {
			return true
		}
		if weights[at] < least || ties == 0 {
			return false
		}
		ties--
		return true
	}
	out := *f
	rare := int32(slices.Index(f.frames, flameFrame{name: RareFrames}))
	if rare < 0 {
		rare = int32(len(f.frames))
		out.frames = append(f.frames[:rare:rare], flameFrame{name: RareFrames})
	}
	out.nodes = []flameNode{f.nodes[0]}
	// out.children has only [rare] and what is below it: each other node is one node of f.
	out.index, out.children = nil, make(map[flameChild]int32)
	place := make([]int32, len(f.nodes))
	cut := make([]bool, len(f.nodes))
	var leaves cutLeaves
	for at := 1; at < len(f.nodes); at++ {
		n := f.nodes[at]
		if cut[n.parent] {
			place[at], cut[at] = place[n.parent], true
		} else if n.frame == rare || !keep(at) {
			place[at], cut[at] = out.child(place[n.parent], rare), true
		} else {
			place[at] = int32(len(out.nodes))
			n.parent = place[n.parent]
			out.nodes = append(out.nodes, n)
			continue
		}
		if n.value != ([2]float64{}) || n.count != ([2]float64{}) { // it is more than a caller
			leaves.add(flameChild{place[at], n.frame}, &n, int32(at))
		}
	}
	leaves.place(&out, rare, limit/2, place)
	out.bars = placeCells(f.bars, place)
	return &out
}

// cutLeaves are the values of what Cut leaves out, by frame and by the frame [rare] that they are
// below.
type cutLeaves struct {
	index map[flameChild]int32
	list  []cutLeaf
	of    [][2]int32 // nodes, and the leaf that each is part of
}

type cutLeaf struct {
	flameChild
	value, count [2]float64
	approx       float64
}

func (l *cutLeaf) weight() float64 { return l.value[0] + l.value[1] }

func (l *cutLeaves) add(to flameChild, n *flameNode, at int32) {
	i, known := l.index[to]
	if !known {
		if l.index == nil {
			l.index = make(map[flameChild]int32)
		}
		i = int32(len(l.list))
		l.index[to], l.list = i, append(l.list, cutLeaf{flameChild: to})
	}
	leaf := &l.list[i]
	for c := range n.value {
		leaf.value[c] += n.value[c]
		leaf.count[c] += n.count[c]
	}
	leaf.approx += n.approx
	l.of = append(l.of, [2]int32{at, i})
}

// place makes nodes of the heaviest leaves, and adds the others to their frame [rare]. It says
// where each node is now.
func (l *cutLeaves) place(out *Graph, rare int32, most int, place []int32) {
	weights := make([]float64, len(l.list))
	for i := range l.list {
		weights[i] = l.list[i].weight()
	}
	slices.Sort(weights)
	// Nodes are made of the leaves that weigh more than least, and of as many of the weight least
	// as there is room for.
	least, ties := 0.0, 0
	if len(weights) > most {
		least = weights[len(weights)-1-most]
		above, _ := slices.BinarySearchFunc(weights, least, func(w,
			least float64) int {
			return cmp.Or(cmp.Compare(w, least), -1)
		})
		ties = most - (len(weights) - above)
	}
	to := make([]int32, len(l.list))
	for i := range l.list {
		leaf := &l.list[i]
		w := leaf.weight()
		tie := w == least && w > 0 && ties > 0
		if to[i] = leaf.parent; (w > least || tie) && leaf.frame != rare {
			to[i] = out.child(leaf.parent, leaf.frame)
			if tie {
				ties--
			}
		}
		n := &out.nodes[to[i]]
		for c := range n.value {
			n.value[c] += leaf.value[c]
			n.count[c] += leaf.count[c]
		}
		n.approx += leaf.approx
	}
	for _, of := range l.of {
		place[of[0]] = to[of[1]]
	}
}
