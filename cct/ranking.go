package cct

import (
	"cmp"
	"slices"
)

// Track makes t keep its n heaviest nodes and its n heaviest edges ready for Hottest and HottestEdges, from now on and
// whatever is in it already; 0, which is how a tree begins, stops that. It takes 32 bytes for each of n, and up to 8
// for each node of the tree, twice that while it grows. Add and AddNew take O(log n) longer for each weight that they
// change if it is among the heaviest, else a comparison.
func (t *Tree[K]) Track(n int) {
	t.bySelf, t.byEntered = nil, nil
	if n > 0 {
		t.bySelf, t.byEntered = t.rank(n, weights.ofSelf), t.rank(n, weights.ofEntered)
	}
}

// Tracked returns the n of Track.
func (t *Tree[K]) Tracked() int {
	if t.bySelf == nil {
		return 0
	}
	return t.bySelf.limit
}

// Hottest returns the n contexts of the largest Self, the largest first and equal ones in the order in which they
// appeared; fewer if fewer have any. Root is not among them, as it has no frame. It sorts what is tracked and looks at
// nothing else if that is enough for n. Otherwise it takes a pass over the tree.
func (t *Tree[K]) Hottest(n int) []NodeID { return t.hottest(n, t.bySelf, weights.ofSelf) }

// HottestEdges returns, as Hottest does, the n contexts of the largest Entered, each of which stands for the edge into
// it: from its Parent, whose key says where the call was made.
func (t *Tree[K]) HottestEdges(n int) []NodeID { return t.hottest(n, t.byEntered, weights.ofEntered) }

func (t *Tree[K]) hottest(n int, r *ranking, of func(weights) uint64) []NodeID {
	if r == nil || r.limit < n {
		r = t.rank(n, of)
	}
	return r.highest(n)
}

// rank returns the n nodes that rank highest.
func (t *Tree[K]) rank(n int, of func(weights) uint64) *ranking {
	r := &ranking{limit: n}
	for id := 1; id < len(t.nodes) && n > 0; id++ {
		r.raise(NodeID(id), of(t.nodes[id].weights))
	}
	return r
}

// A ranking knows the heaviest nodes of a tree by one of their weights, limit of them at most, while the weights grow.
// It takes 16 bytes for each of them and up to 4 for each node of the tree, twice that while it grows.
//
// Whaley keeps all nodes in a list in order of weight, where an increment may have to pass every equally heavy node.
// This is a heap of the heaviest alone. An increment costs O(log limit) if the node is among them, else a comparison.
// It is exact, equally heavy nodes included, of which the earlier ranks higher:
//
// While the heap is not full, it has every node with a weight. When it is full, whatever is outside ranks below all
// that is inside. Both hold for the empty tree, and raise keeps them, as it changes the rank of one node and only
// upwards. A node inside remains above all outside. A node outside either remains below the lowest inside, or it takes
// that one's place: the one that leaves ranked below all others inside and now below the new one, and whatever else is
// outside ranked below the one that leaves.
type ranking struct {
	limit int      // > 0
	heap  []ranked // the lowest first
	index []uint32 // by NodeID: 1 + its index in heap, 0 if it is outside, as is whatever is past the end
}

// ranked is a node with its weight, which is a copy, so that comparisons stay within the heap.
type ranked struct {
	weight uint64
	id     NodeID
}

func (a ranked) below(b ranked) bool {
	return a.weight < b.weight || a.weight == b.weight && a.id > b.id
}

// raise records that a node now has this weight, which is no less than before. Root never ranks. Where there is no
// ranking it is one comparison, in line.
func (r *ranking) raise(id NodeID, weight uint64) {
	if r != nil {
		r.rise(id, weight)
	}
}

func (r *ranking) rise(id NodeID, weight uint64) {
	it, full := ranked{weight, id}, len(r.heap) == r.limit
	switch {
	case weight == 0 || id == Root:
	case full && !r.heap[0].below(it): // outside, or the lowest and as heavy as before
	case int(id) < len(r.index) && r.index[id] > 0:
		r.down(int(r.index[id]-1), it)
	case full:
		r.index[r.heap[0].id] = 0
		r.down(0, it)
	default:
		r.heap = append(r.heap, it)
		r.up(len(r.heap)-1, it)
	}
}

// up puts it where the heap has it at i or nearer to the lowest.
func (r *ranking) up(i int, it ranked) {
	for i > 0 {
		parent := (i - 1) / 2
		if !it.below(r.heap[parent]) {
			break
		}
		r.set(i, r.heap[parent])
		i = parent
	}
	r.set(i, it)
}

// down puts it at i or further from the lowest, in place of what is at i.
func (r *ranking) down(i int, it ranked) {
	for {
		child := 2*i + 1
		if child >= len(r.heap) {
			break
		}
		if right := child + 1; right < len(r.heap) && r.heap[right].below(r.heap[child]) {
			child = right
		}
		if !r.heap[child].below(it) {
			break
		}
		r.set(i, r.heap[child])
		i = child
	}
	r.set(i, it)
}

func (r *ranking) set(i int, it ranked) {
	for int(it.id) >= len(r.index) {
		r.index = append(r.index, 0)
	}
	r.heap[i], r.index[it.id] = it, uint32(i+1)
}

// highest returns the n nodes that rank highest, or all that there are, the highest first.
func (r *ranking) highest(n int) []NodeID {
	sorted := slices.Clone(r.heap)
	slices.SortFunc(sorted, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(a.id, b.id))
	})
	ids := make([]NodeID, min(max(n, 0), len(sorted)))
	for i := range ids {
		ids[i] = sorted[i].id
	}
	return ids
}

func (r *ranking) purge() {
	if r != nil {
		r.heap, r.index = r.heap[:0], r.index[:0]
	}
}
