package flame

import (
	"slices"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

// Cut returns a Graph of the heaviest nodes, about limit of them and at most two and a half times
// as many with what follows. The others become a frame profile.RareStacks of their caller, at most
// one each, so that totals stay true. Below these frames are the heaviest of the innermost methods
// that were left out, at most limit/2, so that the values of methods themselves stay true as far as
// possible. It shares what it can with f, and neither must change afterwards.
func (f *Graph) Cut(limit int) *Graph {
	if f.tree.Len() <= limit {
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
	outer := make([]bool, len(weights)) // processes and threads, which are kept if they are not most of it
	outers := 0
	for at, n := range f.tree.Nodes() {
		if at != cct.Root && (f.frames[n.Key].kind == kindProcess || f.frames[n.Key].kind == kindThread) {
			outer[at] = true
			outers++
		}
	}
	out := *f
	rare := int32(slices.Index(f.frames, flameFrame{name: profile.RareStacks}))
	if rare < 0 {
		rare = int32(len(f.frames))
		out.frames = append(f.frames[:rare:rare], flameFrame{name: profile.RareStacks})
	}
	out.index = nil
	heaviest := cct.NewCutoff(slices.Clone(weights[1:]), limit)
	var place []cct.NodeID
	out.tree, place = f.tree.Prune(&rare, func(at cct.NodeID) bool {
		return outer[at] && outers <= limit/4 || heaviest.Keep(weights[at])
	})
	out.nodes = make([]flameNode, out.tree.Len()+1, out.tree.Len()+1+limit/2)
	for at, n := range f.tree.Nodes() {
		switch of := &f.nodes[at]; {
		case out.tree.Node(place[at]).Key != rare || place[at] == cct.Root:
			out.nodes[place[at]] = *of
		case of.value != [2]float64{} || of.count != [2]float64{}: // it is more than a caller
			if n.Key != rare {
				place[at] = out.child(place[at], n.Key)
			}
			out.nodes[place[at]].add(of)
		}
	}
	out.cutLeaves(rare, limit/2, place)
	out.bars = placeCells(f.bars, place)
	return &out
}

// add adds the values of a node that is left out.
func (n *flameNode) add(o *flameNode) {
	for c := range n.value {
		n.value[c] += o.value[c]
		n.count[c] += o.count[c]
	}
	n.approx += o.approx
}

// cutLeaves leaves the heaviest nodes below the frames rare, at most limit, and adds the others to
// their frame. It changes places accordingly.
func (f *Graph) cutLeaves(rare int32, limit int, place []cct.NodeID) {
	weight := func(at cct.NodeID) float64 { return f.nodes[at].value[0] + f.nodes[at].value[1] }
	isLeaf := func(at cct.NodeID) bool {
		up := f.tree.Node(at).Parent
		return up != cct.Root && f.tree.Node(up).Key == rare
	}
	var weights []float64
	for at := range f.tree.Nodes() {
		if isLeaf(at) {
			weights = append(weights, weight(at))
		}
	}
	if len(weights) <= limit {
		return
	}
	heaviest := cct.NewCutoff(weights, limit)
	tree, again := f.tree.Prune(nil, func(at cct.NodeID) bool {
		return !isLeaf(at) || weight(at) > 0 && heaviest.Keep(weight(at))
	})
	nodes := make([]flameNode, tree.Len()+1)
	for at, of := range f.nodes {
		if leaf := isLeaf(cct.NodeID(at)); leaf && tree.Node(again[at]).Key == rare {
			nodes[again[at]].add(&of)
		} else {
			nodes[again[at]] = of
		}
	}
	for at := range place {
		place[at] = again[place[at]]
	}
	f.tree, f.nodes = tree, nodes
}
