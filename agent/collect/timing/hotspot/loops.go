package hotspot

import (
	"slices"
	"sort"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/timing/flowgraph"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// maxCounters bounds the variables that are looked at as counters of a loop.
const maxCounters = 64

// A loopShape is a loop of a method's bytecode.
type loopShape struct {
	flowgraph.Loop
	head int // bytecode index
}

// A loopCounter is a local variable that changes by the same number in each iteration, and nowhere
// else in the loop.
type loopCounter struct{ local, step int }

// shapes are the loops of a method, outer ones before inner ones.
type shapes struct {
	graph *flowgraph.Graph
	flow  *vmruntime.MethodFlow
	loops []loopShape
	in    []int        // by block: the innermost loop, -1 if none
	once  map[int]bool // by block: whether each iteration of that loop executes it once, as far as it was asked
}

// shapesOf finds the loops of a method. There are none if its graph is too large.
func shapesOf(flow *vmruntime.MethodFlow) *shapes {
	s := &shapes{graph: Graph(flow), flow: flow, in: make([]int, len(flow.Blocks)), once: map[int]bool{}}
	for i := range s.in {
		s.in[i] = -1
	}
	if s.graph.Check() != nil {
		return s
	}
	for _, l := range s.graph.Loops() {
		for _, b := range l.Blocks {
			s.in[b] = len(s.loops) // inner ones come later
		}
		s.loops = append(s.loops, loopShape{Loop: l, head: flow.Blocks[l.Head].Begin})
	}
	return s
}

// block is the block that a bytecode is in, -1 if there is none.
func (s *shapes) block(bci int) int {
	blocks := s.flow.Blocks
	i := sort.Search(len(blocks), func(i int) bool { return blocks[i].End > bci })
	if i == len(blocks) || bci < blocks[i].Begin {
		return -1
	}
	return i
}

// has reports whether a block is in a loop, or in one inside.
func (s *shapes) has(loop, block int) bool {
	_, found := slices.BinarySearch(s.loops[loop].Blocks, block)
	return found
}

// closes is the loop that a jump at the end of a block begins anew, -1 if none.
func (s *shapes) closes(block int) int {
	for i := s.in[block]; i >= 0; i = s.loops[i].Parent {
		if slices.Contains(s.graph.Blocks[block].Successors, s.loops[i].Head) {
			return i
		}
	}
	return -1
}

// every reports whether each iteration of the innermost loop around a block executes it once.
func (s *shapes) every(block int) bool {
	loop := s.in[block]
	if loop < 0 {
		return false
	}
	once, known := s.once[block]
	if !known {
		once = !s.bypassed(loop, block)
		s.once[block] = once
	}
	return once
}

// bypassed reports whether there is a way from the head of a loop back to it without a block.
func (s *shapes) bypassed(loop, block int) bool {
	head := s.loops[loop].Head
	if block == head {
		return false
	}
	seen := map[int]bool{head: true, block: true}
	work := []int{head}
	for len(work) > 0 {
		b := work[len(work)-1]
		work = work[:len(work)-1]
		for _, next := range s.graph.Blocks[b].Successors {
			switch {
			case next == head:
				return true
			case !seen[next] && s.has(loop, next):
				seen[next] = true
				work = append(work, next)
			}
		}
	}
	return false
}

// counters are the counters of a loop, the first ones of many.
func (s *shapes) counters(loop int) (list []loopCounter) {
	writes := map[int]int{} // in the loop, by variable
	var steps []vmruntime.LocalWrite
	for _, w := range s.flow.Writes {
		block := s.block(w.BCI)
		if block < 0 || !s.has(loop, block) {
			continue
		}
		writes[w.Local]++
		if w.Step != 0 && s.in[block] == loop && len(steps) < maxCounters {
			steps = append(steps, w)
		}
	}
	for _, w := range steps {
		if writes[w.Local] == 1 && s.every(s.block(w.BCI)) {
			list = append(list, loopCounter{w.Local, w.Step})
		}
	}
	return list
}

// perCall is how many iterations an invocation had while the VM counted: how often the blocks were
// executed that lead back to the head. 0 if that is not known.
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
