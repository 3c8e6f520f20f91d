package cct

import "iter"

// A Node is what a Tree knows about one context.
type Node[K comparable] struct {
	Key  K      // of the innermost frame; zero for Root
	Self uint64 // weight of exactly this context
	// Entered is the weight of the edge from the caller: how often samples found this context newly entered. An
	// activation counts once, in the first sample that has it on the stack; one that came and went between two samples
	// does not count. Of two contexts with the same Self, the one that was entered more often is called often, the
	// other runs long. Only AddNew knows, so it is 0 of what was added otherwise, and of Root.
	Entered uint64
	Parent  NodeID // Root's parent is Root
	Depth   int    // number of frames; 0 for Root
}

// Len returns the number of contexts, Root not counted.
func (t *Tree[K]) Len() int { return max(len(t.nodes)-1, 0) }

// Total returns the weight of all stacks added. It equals the sum of Self over all nodes.
func (t *Tree[K]) Total() uint64 { return t.total.self }

// Overflow returns the weight that sits at an ancestor of its true context because the tree was full. After Merge
// or Map of trees that had overflowed it is an upper bound, as weight may have been moved up twice.
func (t *Tree[K]) Overflow() uint64 { return t.overflow.self }

// EdgeTotal returns the weight of all edges: the sum of Entered over all nodes.
func (t *Tree[K]) EdgeTotal() uint64 { return t.total.entered }

// EdgeOverflow returns the weight of edges that is missing because the tree was full. EdgeTotal and EdgeOverflow
// together are the new frames of all stacks added, also after Merge. A frame that Map replaces by several counts once
// here if there was not room for all of them.
func (t *Tree[K]) EdgeOverflow() uint64 { return t.overflow.entered }

// Node returns the node of id, which must be Root or stem from this tree.
func (t *Tree[K]) Node(id NodeID) Node[K] {
	if len(t.nodes) == 0 && id == Root {
		return Node[K]{}
	}
	n := &t.nodes[id]
	return Node[K]{Key: n.key, Self: n.self, Entered: n.entered, Parent: n.parent, Depth: int(n.depth)}
}

// Nodes visits every node, Root first and parents before their children, in the order in which contexts appeared.
func (t *Tree[K]) Nodes() iter.Seq2[NodeID, Node[K]] {
	return func(yield func(NodeID, Node[K]) bool) {
		for id := Root; int(id) <= t.Len(); id++ {
			if !yield(id, t.Node(id)) {
				return
			}
		}
	}
}

// Children visits the children of id in no particular order.
func (t *Tree[K]) Children(id NodeID) iter.Seq[NodeID] {
	return func(yield func(NodeID) bool) {
		if len(t.nodes) == 0 {
			return
		}
		for c := t.nodes[id].first; c != Root; c = t.nodes[c].next {
			if !yield(c) {
				return
			}
		}
	}
}

// Stack returns the keys of a context, innermost frame first, as Add took them.
func (t *Tree[K]) Stack(id NodeID) []K {
	stack := make([]K, 0, t.Node(id).Depth)
	for ; id != Root; id = t.nodes[id].parent {
		stack = append(stack, t.nodes[id].key)
	}
	return stack
}

// Totals returns, by NodeID, the weight of each node and all its descendants. It takes one pass.
func (t *Tree[K]) Totals() []uint64 {
	totals := make([]uint64, t.Len()+1)
	for id := t.Len(); id >= 0; id-- { // children before parents
		n := t.Node(NodeID(id))
		totals[id] += n.Self
		if id > 0 {
			totals[n.Parent] += totals[id]
		}
	}
	return totals
}
