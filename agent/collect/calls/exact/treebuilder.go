package exact

import (
	"slices"

	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

// A treeBuilder makes trees from nodes that only know their parents.
type treeBuilder struct {
	nodes, before []bpf.ExactNode // by number; those of the earlier snapshot may be fewer
	first, next   []uint32        // child and sibling, 0 for none
	roots         []uint32
	// objects are the allocations by node, with bpf.ExactLost if it stands for a deeper context;
	// they have no Context.
	objects map[uint32][]Allocation
}

func newTreeBuilder(nodes, before []bpf.ExactNode) *treeBuilder {
	b := &treeBuilder{nodes: nodes, before: before, first: make([]uint32, len(nodes)), next: make([]uint32, len(nodes))}
	for i := len(nodes) - 1; i > 0; i-- {
		n := &nodes[i]
		switch {
		case n.Method == 0: // it is under construction, or had no room
		case n.Parent == 0:
			b.roots = append(b.roots, uint32(i))
		case n.Parent < uint32(i): // always
			b.next[i], b.first[n.Parent] = b.first[n.Parent], uint32(i)
		}
	}
	slices.Reverse(b.roots)
	return b
}

// calls returns the calls of a node since the earlier snapshot: its own, and those of deeper
// contexts without a node.
func (b *treeBuilder) calls(i uint32) (own, overflow uint64) {
	n := &b.nodes[i]
	own, overflow = n.Calls, n.Overflow
	if int(i) < len(b.before) {
		own -= b.before[i].Calls
		overflow -= b.before[i].Overflow
	}
	return own, overflow
}

// allocated sorts objects by their node: those since an earlier snapshot.
func (b *treeBuilder) allocated(now, before map[bpf.ExactAllocation]bpf.ExactAllocations) {
	b.objects = map[uint32][]Allocation{}
	for key, n := range now {
		was := before[key]
		if n.Objects == was.Objects {
			continue
		}
		b.objects[key.Node] = append(b.objects[key.Node], Allocation{
			Class: Class{Addr: key.Klass, Epoch: key.ClassEpoch}, Objects: n.Objects - was.Objects,
			Bytes: n.Bytes - was.Bytes,
		})
	}
}

// tree returns the tree below a root, and what was allocated in its contexts. Siblings are visited
// one after the other, so that Add finds most of each stack in the one before.
func (b *treeBuilder) tree(root uint32, complete bool) (*cct.Tree[Method], []Allocation) {
	t := &cct.Tree[Method]{Limit: 2*len(b.nodes) + 2} // an Overflow below each, and BeforeRecording
	var path []Method                                 // outermost first
	if !complete {
		path = append(path, BeforeRecording)
	}
	var stack []Method
	add := func(calls uint64, leaf ...Method) {
		if calls == 0 {
			return
		}
		stack = append(append(stack[:0], path...), leaf...)
		slices.Reverse(stack)
		t.Add(stack, calls)
	}
	var made []Allocation
	allocated := func(node uint32, leaf ...Method) {
		for _, a := range b.objects[node] {
			stack = append(append(stack[:0], path...), leaf...)
			slices.Reverse(stack)
			a.Context = t.Add(stack, 0)
			made = append(made, a)
		}
	}
	_, overflow := b.calls(root)
	add(overflow, Overflow)
	allocated(root)
	allocated(root|bpf.ExactLost, Overflow)
	for i := b.first[root]; i != 0; {
		n := &b.nodes[i]
		path = append(path, Method{Addr: n.Method, Epoch: n.ClassEpoch})
		own, overflow := b.calls(i)
		add(own)
		add(overflow, Overflow)
		allocated(i)
		allocated(i|bpf.ExactLost, Overflow)
		if b.first[i] != 0 {
			i = b.first[i]
			continue
		}
		for i != root {
			path = path[:len(path)-1]
			if b.next[i] != 0 {
				i = b.next[i]
				break
			}
			i = b.nodes[i].Parent
		}
		if i == root {
			break
		}
	}
	return t, made
}
