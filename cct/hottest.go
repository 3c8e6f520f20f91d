package cct

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
