// Package cct holds calling context trees, dynamic call graphs, and measures for comparing them.
//
// A calling context tree has one node per distinct call stack: a method reached along two paths is
// two nodes, and all samples with the same stack share one. Trees are built from stack samples, and
// recursion keeps its whole context, both as in Whaley's partial calling context tree (Java Grande
// 2000), which a Tree is. The original of Ammons, Ball and Larus (PLDI 1997) counts calls and folds
// recursion into back edges. The package does not know what a method is: K is anything that
// identifies a frame.
//
//	var t cct.Tree[string]
//	t.Add([]string{"D", "B", "A"}, 1) // D was running, called by B, called by A
//	for _, e := range cct.Hot(&t, func(k string) string { return k }) {
//		fmt.Println(e.Key, e.Self, e.Total)
//	}
package cct

import (
	"iter"
	"math"
)

// DefaultLimit is how many nodes a Tree holds by default: about 50 MB with one-word keys, 100 MB if
// most nodes have so many siblings that they are hashed.
const DefaultLimit = 1 << 20

// nearChildren is how many children of a node are found by walking a list; the rest are found by
// hash. Most nodes have one or two children, so most trees never hash. The bound keeps Add from
// becoming linear for a target that calls thousands of callees from one method.
const nearChildren = 8

// A NodeID identifies a node within one Tree. Parents have smaller ids than their children.
type NodeID uint32

// Root is the empty context, above the outermost frames. It has no key.
const Root NodeID = 0

// A Tree is a calling context tree of weighted stacks. The zero value is empty and ready to use.
// One goroutine may add while nobody reads; any number may read while nobody adds.
//
// It is the partial calling context tree of Whaley ("A Portable Sampling-Based Profiler for Java
// Virtual Machines", Java Grande 2000). The time of his nodes is Node.Self. The weight of his
// edges, which AddNew counts, is Node.Entered: in a tree one edge leads to each node, so it needs
// no storage of its own, and its call site is part of the caller's key. He keeps a list of nodes in
// order of weight while they grow; Hottest sorts on request instead.
//
// Memory is bounded by Limit. A full tree continues to count for existing nodes. The weight of any
// other context goes to its deepest existing ancestor, and also counts as Overflow. New frames
// without a node count as EdgeOverflow only, as no ancestor was entered more often because of them.
// Nothing is evicted: a tree stays full until Purge, which forgets everything and keeps the memory,
// as Whaley clears his buffer.
type Tree[K comparable] struct {
	// Limit bounds the nodes, Root not counted; 0 means DefaultLimit.
	Limit int

	nodes    arena[K] // Root exists once anything was added
	far      map[edge[K]]NodeID
	path     []step[K] // the last stack added, outermost frame first
	total    weights   // sum over all nodes
	overflow weights   // weights of contexts and edges without room
}

// weights are those of a node: self is that of the context, entered that of the edge from its
// caller.
type weights struct{ self, entered uint64 }

// node is 40 bytes for one-word keys. Siblings are linked: first and next are Root at the end of a
// list.
type node[K comparable] struct {
	key K
	weights
	parent      NodeID
	first, next NodeID
	depth       uint32
}

type edge[K comparable] struct {
	parent NodeID
	key    K
}

type step[K comparable] struct {
	key K
	id  NodeID
}

// Add counts weight for the context that stack describes, innermost frame first, and returns its
// node. Weight may be 0; the empty stack is Root.
//
// If the tree is full, the weight goes to the deepest existing ancestor, whose node is returned,
// and Overflow grows by it.
//
// Successive stacks of one thread mostly share their outer frames. So Add first follows the
// previous stack as long as the keys agree, which costs one comparison per frame and no look-up.
// Whaley marks the frames that he has seen instead, which would mean writing into the target.
func (t *Tree[K]) Add(stack []K, weight uint64) NodeID {
	t.plant()
	shared := 0
	for shared < len(t.path) && shared < len(stack) && t.path[shared].key == stack[len(stack)-1-shared] {
		shared++
	}
	t.path = t.path[:shared]
	id := Root
	if shared > 0 {
		id = t.path[shared-1].id
	}
	for i := len(stack) - 1 - shared; i >= 0; i-- {
		child := t.child(id, stack[i])
		if child == Root {
			t.overflow.self += weight
			break
		}
		id = child
		t.path = append(t.path, step[K]{stack[i], id})
	}
	n := t.nodes.at(id)
	n.self += weight
	t.total.self += weight
	return id
}

// AddNew is Add for a stack whose fresh innermost frames are new since the previous sample of the
// same thread: the weight of the edge into each of them, Node.Entered, grows by one. All frames are
// new in the first sample of a thread, none in the next if nothing returned or was called in
// between. A negative fresh counts as 0, and one that exceeds the number of frames as all of them.
//
// New frames for which a full tree has no room count as one each in EdgeOverflow.
func (t *Tree[K]) AddNew(stack []K, fresh int, weight uint64) NodeID {
	id := t.Add(stack, weight)
	fresh = max(min(fresh, len(stack)), 0)
	without := min(len(stack)-int(t.nodes.at(id).depth), fresh)
	t.overflow.entered += uint64(without)
	fresh -= without
	t.total.entered += uint64(fresh)
	for at := id; fresh > 0; fresh-- {
		n := t.nodes.at(at)
		n.entered++
		at = n.parent
	}
	return id
}

// AddUnder is Add for the stack of a node behind that stack, which is innermost frame first.
func (t *Tree[K]) AddUnder(node NodeID, stack []K, weight uint64) NodeID {
	t.plant()
	id := node
	for i := len(stack) - 1; i >= 0; i-- {
		child := t.child(id, stack[i])
		if child == Root {
			t.overflow.self += weight
			break
		}
		id = child
	}
	t.nodes.at(id).self += weight
	t.total.self += weight
	return id
}

// AddBelow adds to the node of parent's child for key: weight self to it, and entered to the edge
// into it. It returns that child, which it makes if necessary. Readers of a stored tree, parents
// before their children, build it with one call per node. When the tree is full, the weight goes to
// parent, as with Add, and parent is returned.
func (t *Tree[K]) AddBelow(parent NodeID, key K, self, entered uint64) NodeID {
	t.plant()
	id := t.child(parent, key)
	if id == Root {
		id = parent
		t.overflow.self += self
		t.overflow.entered += entered
	} else {
		t.nodes.at(id).entered += entered
		t.total.entered += entered
	}
	t.nodes.at(id).self += self
	t.total.self += self
	return id
}

// Purge forgets every context, all weights and overflow, and keeps the memory and Limit. Adding the
// same amount again does not allocate. Earlier NodeIDs become invalid.
func (t *Tree[K]) Purge() {
	t.nodes.clear()
	clear(t.path[:cap(t.path)])
	clear(t.far)
	t.path = t.path[:0]
	t.total, t.overflow = weights{}, weights{}
}

// plant makes sure that there is a root.
func (t *Tree[K]) plant() {
	if t.nodes.len() == 0 {
		t.nodes.push(node[K]{})
	}
}

// child returns the child of parent for key, which it makes if necessary, or Root if the tree is
// full.
func (t *Tree[K]) child(parent NodeID, key K) NodeID {
	id, last, wide := t.find(parent, key)
	if id != Root || t.full() {
		return id
	}
	n := node[K]{key: key, parent: parent, depth: t.nodes.at(parent).depth + 1}
	if last != Root { // behind the near children, so that these stay the same
		n.next = t.nodes.at(last).next
	}
	id = t.nodes.push(n)
	if last == Root {
		t.nodes.at(parent).first = id
	} else {
		t.nodes.at(last).next = id
	}
	if wide {
		if t.far == nil {
			t.far = make(map[edge[K]]NodeID)
		}
		t.far[edge[K]{parent, key}] = id
	}
	return id
}

// find returns the child of parent for key, or Root. It also returns the last near child that it
// passed, after which a new sibling must be inserted, and whether there were so many that the new
// one must be hashed.
func (t *Tree[K]) find(parent NodeID, key K) (id, last NodeID, wide bool) {
	id = t.nodes.at(parent).first
	for range nearChildren {
		if id == Root || t.nodes.at(id).key == key {
			return id, last, false
		}
		last, id = id, t.nodes.at(id).next
	}
	return t.far[edge[K]{parent, key}], last, true
}

func (t *Tree[K]) full() bool {
	limit := t.Limit
	if limit <= 0 {
		limit = DefaultLimit
	}
	// NodeID is 32 bits wide, whatever Limit says.
	return t.Len() >= min(limit, math.MaxInt32)
}

// A Node is the data of one context in a Tree.
type Node[K comparable] struct {
	Key  K      // key of the innermost frame; zero for Root
	Self uint64 // weight of exactly this context
	// Entered is the weight of the edge from the caller: how often samples found this context newly
	// entered. An activation counts once, in the first sample that has it on the stack; one that
	// began and ended between two samples does not count. Of two contexts with the same Self, the
	// one entered more often is called often, the other runs long. Only AddNew counts it: it is 0
	// for weight added otherwise, and for Root.
	Entered uint64
	Parent  NodeID // Root's parent is Root
	Depth   int    // number of frames; 0 for Root
}

// Len returns the number of contexts, Root not counted.
func (t *Tree[K]) Len() int { return max(t.nodes.len()-1, 0) }

// Total returns the weight of all added stacks. It equals the sum of Self over all nodes.
func (t *Tree[K]) Total() uint64 { return t.total.self }

// Overflow returns the weight that was added to an ancestor of its true context because the tree
// was full. After Merge or Map of trees that had overflowed it is an upper bound, as weight may
// have been moved up twice.
func (t *Tree[K]) Overflow() uint64 { return t.overflow.self }

// EdgeTotal returns the weight of all edges: the sum of Entered over all nodes.
func (t *Tree[K]) EdgeTotal() uint64 { return t.total.entered }

// EdgeOverflow returns the weight of edges that is missing because the tree was full. EdgeTotal and
// EdgeOverflow together are the new frames of all added stacks, also after Merge. A frame that Map
// replaces by several counts once here if there was not room for all of them.
func (t *Tree[K]) EdgeOverflow() uint64 { return t.overflow.entered }

// Node returns the node of id, which must be Root or come from this tree.
func (t *Tree[K]) Node(id NodeID) Node[K] {
	if t.nodes.len() == 0 && id == Root {
		return Node[K]{}
	}
	n := t.nodes.at(id)
	return Node[K]{Key: n.key, Self: n.self, Entered: n.entered, Parent: n.parent, Depth: int(n.depth)}
}

// Nodes visits every node, Root first and parents before their children, in the order in which
// contexts appeared.
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
		if t.nodes.len() == 0 {
			return
		}
		for c := t.nodes.at(id).first; c != Root; c = t.nodes.at(c).next {
			if !yield(c) {
				return
			}
		}
	}
}

// Stack returns the keys of a context, innermost frame first, as passed to Add.
func (t *Tree[K]) Stack(id NodeID) []K {
	stack := make([]K, 0, t.Node(id).Depth)
	for ; id != Root; id = t.nodes.at(id).parent {
		stack = append(stack, t.nodes.at(id).key)
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
