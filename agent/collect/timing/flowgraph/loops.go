package flowgraph

import "slices"

// A Loop is a set of blocks that all reach each other, without the heads of the loops around it.
type Loop struct {
	Head   int   // a block at which it is entered; of several (an irreducible loop) the one that is executed most
	Blocks []int // ascending, those of inner loops included
	Parent int   // index of the loop around it, -1
	Depth  int   // 0: no loop is around it
}

// Loops are the loops of the blocks that the entry reaches, in depth-first order: a loop comes
// before those in it, and loops next to each other are in the order of their heads. They are the
// strongly connected components; without the head, those of what is left are the loops inside. It
// takes as many passes over the graph as loops are nested, at most MaxBlocks. The graph must be
// one.
func (g *Graph) Loops() []Loop {
	f := forest{g: g, in: make([]int, len(g.Blocks)), index: make([]int, len(g.Blocks)),
		low: make([]int, len(g.Blocks)), onStack: make([]bool, len(g.Blocks))}
	all := g.reachable()
	f.find(all, -1, 0)
	return f.order()
}

// reachable are the blocks that the entry reaches, ascending.
func (g *Graph) reachable() (all []int) {
	seen := make([]bool, len(g.Blocks))
	seen[0] = true
	work := []int{0}
	for len(work) > 0 {
		b := work[len(work)-1]
		work = work[:len(work)-1]
		all = append(all, b)
		for _, s := range g.Blocks[b].Successors {
			if !seen[s] {
				seen[s] = true
				work = append(work, s)
			}
		}
	}
	slices.Sort(all)
	return all
}

// A forest is a search for loops.
type forest struct {
	g          *Graph
	loops      []Loop
	in         []int // number of the set that a block is in now
	sets       int
	index, low []int // Tarjan's: 0 is not visited
	onStack    []bool
}

// find adds the loops of a set of blocks, those inside included. Sets that wait for their turn are
// on a stack of its own: hostile graphs nest deeper than goroutines should.
func (f *forest) find(blocks []int, parent, depth int) {
	type set struct {
		blocks        []int
		parent, depth int
	}
	work := []set{{blocks, parent, depth}}
	for len(work) > 0 {
		s := work[len(work)-1]
		work = work[:len(work)-1]
		for _, c := range f.components(s.blocks) {
			head := f.head(c)
			f.loops = append(f.loops, Loop{Head: head, Blocks: c, Parent: s.parent, Depth: s.depth})
			inner := slices.DeleteFunc(slices.Clone(c), func(b int) bool { return b == head })
			if len(inner) > 0 {
				work = append(work, set{inner, len(f.loops) - 1, s.depth + 1})
			}
		}
	}
}

// head is the block of a loop at which it is entered.
func (f *forest) head(blocks []int) int {
	inside := map[int]bool{}
	for _, b := range blocks {
		inside[b] = true
	}
	entered := map[int]bool{}
	for b := range f.g.Blocks {
		if inside[b] {
			continue
		}
		for _, s := range f.g.Blocks[b].Successors {
			if inside[s] {
				entered[s] = true
			}
		}
	}
	if inside[0] {
		entered[0] = true
	}
	best, found := blocks[0], false
	for _, b := range blocks {
		if entered[b] && (!found || f.g.Blocks[b].Freq > f.g.Blocks[best].Freq) {
			best, found = b, true
		}
	}
	return best
}

// components are the strongly connected components of a set that have an edge inside, by Tarjan's
// algorithm.
func (f *forest) components(blocks []int) (found [][]int) {
	f.sets++
	for _, b := range blocks {
		f.in[b], f.index[b] = f.sets, 0
	}
	type frame struct{ block, edge int }
	var stack []int
	next := 1
	for _, root := range blocks {
		if f.index[root] != 0 {
			continue
		}
		calls := []frame{{root, 0}}
		for len(calls) > 0 {
			top := &calls[len(calls)-1]
			b := top.block
			if f.index[b] == 0 {
				f.index[b], f.low[b], f.onStack[b] = next, next, true
				next++
				stack = append(stack, b)
			}
			successors := f.g.Blocks[b].Successors
			if top.edge < len(successors) {
				s := successors[top.edge]
				top.edge++
				switch {
				case f.in[s] != f.sets:
				case f.index[s] == 0:
					calls = append(calls, frame{s, 0})
				case f.onStack[s]:
					f.low[b] = min(f.low[b], f.index[s])
				}
				continue
			}
			calls = calls[:len(calls)-1]
			if len(calls) > 0 {
				up := calls[len(calls)-1].block
				f.low[up] = min(f.low[up], f.low[b])
			}
			if f.low[b] != f.index[b] {
				continue
			}
			at := slices.Index(stack, b)
			component := slices.Clone(stack[at:])
			stack = stack[:at]
			for _, c := range component {
				f.onStack[c] = false
			}
			if len(component) > 1 || slices.Contains(successors, b) {
				slices.Sort(component)
				found = append(found, component)
			}
		}
	}
	return found
}

// order puts the loops into depth-first order.
func (f *forest) order() []Loop {
	children := make([][]int, len(f.loops)+1) // the last is of those that nothing is around
	for i := range f.loops {
		p := f.loops[i].Parent
		if p < 0 {
			p = len(f.loops)
		}
		children[p] = append(children[p], i)
	}
	var ordered []Loop
	type visit struct{ loop, parent int }
	push := func(work []visit, of, parent int) []visit {
		slices.SortFunc(children[of], func(a, b int) int { return f.loops[b].Head - f.loops[a].Head })
		for _, c := range children[of] {
			work = append(work, visit{c, parent})
		}
		return work
	}
	work := push(nil, len(f.loops), -1)
	for len(work) > 0 {
		v := work[len(work)-1]
		work = work[:len(work)-1]
		l := f.loops[v.loop]
		l.Parent = v.parent
		ordered = append(ordered, l)
		work = push(work, v.loop, len(ordered)-1)
	}
	return ordered
}
