package cct

// Merge adds every context of other, which may be nil or t itself, with its weight and that of the
// edge into it.
func (t *Tree[K]) Merge(other *Tree[K]) {
	if other == nil {
		return
	}
	one := make([]K, 1)
	graft(t, other, func(key K) []K {
		one[0] = key
		return one
	})
}

// Map returns t with every frame replaced by f of its key. f returns several frames, innermost
// first, if one stands for several (methods inlined into each other), or none to leave it out; then
// its weight goes to its caller. Contexts that become equal are merged and the total stays. f is
// called once per node and must not keep state; its result is read before the next call. The result
// has the Limit of t.
//
// If a frame was new, so were all frames that replace it: each of them gets its Entered. Calls of
// methods inlined into a frame that stays are not observed. The Entered of a frame that is left out
// is dropped: its caller was not entered more often because of this call, and its callees have
// their own counts. So EdgeTotal may grow or shrink.
func Map[K, L comparable](t *Tree[K], f func(K) []L) *Tree[L] {
	mapped := &Tree[L]{Limit: t.Limit}
	graft(mapped, t, f)
	return mapped
}

// graft adds to dst every context of src with its keys expanded.
func graft[K, L comparable](dst *Tree[L], src *Tree[K], expand func(K) []L) {
	if src.nodes.len() == 0 {
		return
	}
	if dst.nodes.len() == 0 { // it will have about as many
		dst.nodes.reserve(src.nodes.len())
	}
	dst.plant()
	dst.total.self += src.total.self
	dst.overflow.self += src.overflow.self
	dst.overflow.entered += src.overflow.entered
	// The destination of each node of src. Below a node without room, everything goes to the same
	// ancestor: otherwise the frames further in would appear under a caller that they never had.
	type place struct {
		id  NodeID
		cut bool
	}
	places := make([]place, src.nodes.len())
	for i := range places {
		n := *src.nodes.at(NodeID(i))
		at := places[n.parent]
		if NodeID(i) != Root && !at.cut {
			keys := expand(n.key)
			for j := len(keys) - 1; j >= 0 && !at.cut; j-- {
				if child := dst.child(at.id, keys[j]); child != Root {
					at.id = child
					dst.nodes.at(child).entered += n.entered
					dst.total.entered += n.entered
				} else {
					at.cut = true
				}
			}
		}
		if at.cut {
			dst.overflow.self += n.self
			dst.overflow.entered += n.entered
		}
		dst.nodes.at(at.id).self += n.self
		places[i] = at
	}
}
