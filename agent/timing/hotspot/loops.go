package hotspot

import (
	"slices"

	"github.com/vmprof-agent/vmprof-agent/agent/timing/place"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A loopShape is a loop of a method's bytecode.
type loopShape struct {
	place.Loop
	head     int           // bytecode index
	counters []loopCounter // that show how many iterations were made
	perCall  float64       // iterations in an invocation while the VM counted; 0: not known
}

// A loopCounter is a local variable that changes by the same number in each iteration, and nowhere else in the loop.
type loopCounter struct{ local, step int }

// shapes are the loops of a method, outer ones before inner ones.
type shapes struct {
	graph *place.Graph
	flow  *vmruntime.MethodFlow
	loops []loopShape
}

// shapesOf finds the loops of a method. There are none if its graph is too large.
func shapesOf(flow *vmruntime.MethodFlow) *shapes {
	s := &shapes{graph: Graph(flow), flow: flow}
	if s.graph.Check() != nil {
		return s
	}
	for _, l := range s.graph.Loops() {
		s.loops = append(s.loops, loopShape{Loop: l, head: flow.Blocks[l.Head].Begin})
	}
	for i := range s.loops {
		s.loops[i].counters = s.counters(i)
		s.loops[i].perCall = s.perCall(i)
	}
	return s
}

// block is the block that a bytecode is in, -1 if there is none.
func (s *shapes) block(bci int) int {
	return slices.IndexFunc(s.flow.Blocks, func(b vmruntime.FlowBlock) bool { return bci >= b.Begin && bci < b.End })
}

// innermost is the loop that a block is in, -1 if none.
func (s *shapes) innermost(block int) int {
	found := -1
	for i := range s.loops {
		if slices.Contains(s.loops[i].Blocks, block) {
			found = i // inner ones come later
		}
	}
	return found
}

// closes is the loop that a jump at the end of a block begins anew, -1 if none.
func (s *shapes) closes(block int) int {
	for i := len(s.loops) - 1; i >= 0; i-- {
		l := &s.loops[i]
		if slices.Contains(l.Blocks, block) && slices.Contains(s.graph.Blocks[block].Successors, l.Head) {
			return i
		}
	}
	return -1
}

// every reports whether each iteration of a loop executes a block once.
func (s *shapes) every(loop, block int) bool {
	l := &s.loops[loop]
	if s.innermost(block) != loop {
		return false
	}
	if block == l.Head {
		return true
	}
	// Without the block there must be no way round.
	seen := map[int]bool{l.Head: true, block: true}
	work := []int{l.Head}
	for len(work) > 0 {
		b := work[len(work)-1]
		work = work[:len(work)-1]
		for _, next := range s.graph.Blocks[b].Successors {
			switch {
			case next == l.Head:
				return false
			case !seen[next] && slices.Contains(l.Blocks, next):
				seen[next] = true
				work = append(work, next)
			}
		}
	}
	return true
}

// counters are the counters of a loop.
func (s *shapes) counters(loop int) (list []loopCounter) {
	writes := map[int]int{} // in the loop, by variable
	for _, w := range s.flow.Writes {
		if slices.Contains(s.loops[loop].Blocks, s.block(w.BCI)) {
			writes[w.Local]++
		}
	}
	for _, w := range s.flow.Writes {
		if block := s.block(w.BCI); w.Step != 0 && writes[w.Local] == 1 && slices.Contains(s.loops[loop].Blocks, block) && s.every(loop, block) {
			list = append(list, loopCounter{w.Local, w.Step})
		}
	}
	return list
}

// perCall is how many iterations an invocation had while the VM counted: how often the blocks were executed that lead back to the
// head.
func (s *shapes) perCall(loop int) float64 {
	if !s.flow.Counted || s.flow.Blocks[0].Count == 0 {
		return 0
	}
	sum := 0.
	for _, b := range s.loops[loop].Blocks {
		if slices.Contains(s.graph.Blocks[b].Successors, s.loops[loop].Head) {
			sum += s.graph.Blocks[b].Freq
		}
	}
	return sum / float64(s.flow.Blocks[0].Count)
}
