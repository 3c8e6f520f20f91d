package agent

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/target"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

// A topEdge is the two innermost physical frames of a sampled stack whose innermost one was guest code at work: where
// the thread was, and where that code had been called.
type topEdge struct {
	at, from target.RawFrame // from is zero if at is the outermost frame
}

// maxTopEdges bounds those that are counted of one process.
const maxTopEdges = 1 << 15

// topEdges counts samples of one process by their topEdge.
type topEdges struct {
	edges map[topEdge]float64
	left  float64       // samples of edges beyond maxTopEdges
	all   float64       // samples, of whatever was at work
	span  time.Duration // that they were taken in; fades as they do
}

// topOf returns the topEdge of a stack, innermost frame first. A tick in the kernel counts for the guest code that it
// interrupted. False if something else was at work: a stub, the VM.
func topOf(stack []target.RawFrame) (e topEdge, ok bool) {
	for len(stack) > 0 && stack[0].Kind == target.RawKernel {
		stack = stack[1:]
	}
	if len(stack) == 0 || stack[0].Kind != target.RawExact || !guestCode(stack[0].Frame) {
		return e, false
	}
	e.at = stack[0]
	if len(stack) > 1 {
		e.from = stack[1]
	}
	e.at.End, e.from.End = 0, 0
	return e, true
}

func guestCode(f bpf.Frame) bool {
	return f.Kind() == bpf.FrameJIT || f.Kind() == bpf.FrameInterpreted
}

// add counts samples with this stack.
func (t *topEdges) add(stack []target.RawFrame, samples float64) {
	t.all += samples
	e, ok := topOf(stack)
	if !ok {
		return
	}
	if t.edges == nil {
		t.edges = map[topEdge]float64{}
	}
	if _, known := t.edges[e]; !known && len(t.edges) >= maxTopEdges {
		t.left += samples
		return
	}
	t.edges[e] += samples
}

// clone returns a copy.
func (t *topEdges) clone() topEdges { return topEdges{maps.Clone(t.edges), t.left, t.all, t.span} }

// addTree counts all samples of a tree.
func (t *topEdges) addTree(tree *fold.Tree) {
	var stack []target.RawFrame
	for id, n := range tree.Nodes() {
		if n.Self == 0 || id == cct.Root {
			continue
		}
		stack = stack[:0]
		for at := id; at != cct.Root; at = tree.Node(at).Parent {
			k := tree.Node(at).Key
			stack = append(stack, k)
			if k.Kind != target.RawKernel && len(stack) > 1 && stack[len(stack)-2].Kind != target.RawKernel {
				break // two frames that are not the kernel's
			}
		}
		t.add(stack, float64(n.Self))
	}
}

// fade takes a part of all counts away, and forgets what is hardly there any more.
func (t *topEdges) fade(by float64) {
	const least = 0.1 // of a sample
	t.all *= 1 - by
	t.left *= 1 - by
	t.span = time.Duration(float64(t.span) * (1 - by))
	for e := range t.edges {
		if t.edges[e] *= 1 - by; t.edges[e] < least {
			delete(t.edges, e)
		}
	}
}

// A topCode is a compiled version that was at work.
type topCode struct {
	frame   bpf.Frame // somewhere in it
	samples float64
}

// hottest returns the n compiled versions that were at work most, the hottest first.
func (t *topEdges) hottest(n int) []topCode {
	byID := map[uint32]topCode{}
	for e, samples := range t.edges {
		if e.at.Frame.Kind() == bpf.FrameJIT {
			c := byID[e.at.Frame.CompileID()]
			c.frame, c.samples = max(c.frame, e.at.Frame), c.samples+samples
			byID[e.at.Frame.CompileID()] = c
		}
	}
	all := make([]topCode, 0, len(byID))
	for _, c := range byID {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b topCode) int {
		return cmp.Or(cmp.Compare(b.samples, a.samples), cmp.Compare(a.frame, b.frame))
	})
	return all[:min(n, len(all))]
}
