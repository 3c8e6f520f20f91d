package cct

import (
	"cmp"
	"slices"
)

// Walk visits the nodes below Root depth first, siblings in the order of compare. It does not
// descend below a node for which visit returns false.
func (t *Tree[K]) Walk(compare func(a, b NodeID) int, visit func(NodeID, Node[K]) bool) {
	// The pending nodes, the next one last. An explicit stack, because a profiled process's may be
	// deeper than ours should be.
	var pending []NodeID
	push := func(parent NodeID) {
		from := len(pending)
		pending = slices.AppendSeq(pending, t.Children(parent))
		slices.SortFunc(pending[from:], func(a, b NodeID) int { return compare(b, a) })
	}
	for push(Root); len(pending) > 0; {
		id := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		if visit(id, t.Node(id)) {
			push(id)
		}
	}
}

// Heaviest orders siblings for Walk: by totals (see Totals), the heaviest first, then by compare of
// their keys, so that nothing depends on the order of samples.
func (t *Tree[K]) Heaviest(totals []uint64, compare func(a, b K) int) func(a, b NodeID) int {
	return func(a, b NodeID) int {
		return cmp.Or(cmp.Compare(totals[b], totals[a]), compare(t.nodes.at(a).key, t.nodes.at(b).key))
	}
}

// ByKey orders siblings for Walk by compare of their keys.
func (t *Tree[K]) ByKey(compare func(a, b K) int) func(a, b NodeID) int {
	return func(a, b NodeID) int { return compare(t.nodes.at(a).key, t.nodes.at(b).key) }
}

// traverse calls enter on the way down and leave on the way up for every node but Root, siblings in
// any order.
func (t *Tree[K]) traverse(enter, leave func(NodeID)) {
	if t.Len() == 0 {
		return
	}
	for id := t.nodes.at(Root).first; id != Root; {
		enter(id)
		if first := t.nodes.at(id).first; first != Root {
			id = first
			continue
		}
		for id != Root {
			leave(id)
			if next := t.nodes.at(id).next; next != Root {
				id = next
				break
			}
			id = t.nodes.at(id).parent
		}
	}
}
