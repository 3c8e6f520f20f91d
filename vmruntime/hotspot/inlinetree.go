package hotspot

import (
	"slices"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// InlineTree is what was inlined where in a compilation. It is made once for each that Lookup remembers.
func (p *Process) InlineTree(of vmruntime.Compilation) (*vmruntime.InlineTree, error) {
	c, err := p.codeAt(vmruntime.Site{
		Kind: vmruntime.Compiled, Version: of.Version, PC: of.Begin, Epoch: p.currentEpoch(), Exact: true,
	})
	if err != nil {
		return nil, err
	}
	if c.tree == nil {
		calls, err := p.madeCalls(of, c)
		if err != nil {
			return nil, err
		}
		c.tree = c.inlineTree(calls)
	}
	return c.tree, nil
}

// inlineTree folds the scopes into copies of methods: scopes that differ only in their bytecode index are places in
// one copy. Those are kept that calls return to; all of them if calls is nil.
func (c *code) inlineTree(calls map[int32]bool) *vmruntime.InlineTree {
	tree := &vmruntime.InlineTree{Nodes: []vmruntime.InlineNode{{Parent: -1, BCI: -1, Method: c.method}}}
	if c.scopes == nil {
		return tree
	}
	type copyOf struct {
		parent, bci int
		method      uint64
	}
	nodes := map[copyOf]int{{-1, -1, c.method}: 0}
	nodeOf := make([]int, len(c.scopes.scopes)) // by scope, plus 1
	var node func(scope int32) int
	node = func(scope int32) int { // no deeper than chains are: maxInlining
		if nodeOf[scope] != 0 {
			return nodeOf[scope] - 1
		}
		s := &c.scopes.scopes[scope]
		key := copyOf{-1, -1, c.scopes.methods[s.method]}
		if s.sender != noScope {
			key.parent, key.bci = node(s.sender), int(c.scopes.scopes[s.sender].bci)
		}
		i, ok := nodes[key]
		if !ok {
			i = len(tree.Nodes)
			nodes[key] = i
			tree.Nodes = append(tree.Nodes, vmruntime.InlineNode{Parent: key.parent, BCI: key.bci, Method: key.method})
		}
		nodeOf[scope] = i + 1
		return i
	}
	for _, at := range c.scopes.positions {
		if at.scope != noScope {
			n := &tree.Nodes[node(at.scope)]
			if bci := int(c.scopes.scopes[at.scope].bci); bci >= 0 && (calls == nil || calls[at.offset]) {
				n.Calls = append(n.Calls, bci)
			}
		}
	}
	for i := range tree.Nodes {
		n := &tree.Nodes[i]
		slices.Sort(n.Calls)
		n.Calls = slices.Clip(slices.Compact(n.Calls))
	}
	return tree
}
