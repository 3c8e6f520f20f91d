package hotspot

import (
	"slices"
	"sort"
)

// shared returns the innermost scope that the places around offset have in common.
func (t *scopeTable) shared(offset int32) place {
	each := neighbours
	if t.complete {
		each = neighboursComplete
	}
	i := sort.Search(len(t.evidence), func(i int) bool { return t.evidence[i].offset >= offset })
	var paths [][]int32
	for _, at := range t.evidence[max(i-each, 0):min(i+each, len(t.evidence))] {
		paths = append(paths, t.path(at.scope))
	}
	in := place{scope: noScope}
	for depth := 0; len(paths) > 0; depth++ {
		located := true
		for _, path := range paths {
			if depth >= len(path) {
				return in
			}
			first, other := &t.scopes[paths[0][depth]], &t.scopes[path[depth]]
			if first.method != other.method {
				return in
			}
			located = located && first.bci == other.bci
		}
		in = place{scope: paths[0][depth], located: located}
		if !located {
			return in
		}
	}
	return in
}

// path lists a scope and those that it was inlined into, outermost first.
func (t *scopeTable) path(scope int32) []int32 {
	var path []int32
	for ; scope != noScope && len(path) < maxInlining; scope = t.scopes[scope].sender {
		path = append(path, scope)
	}
	if scope != noScope { // deeper than any code: what is outermost is not known
		return nil
	}
	slices.Reverse(path)
	return path
}

// forgetDefault takes their scope from positions that have it by default. C2 notes the scope of each node of its graph as it
// parses. Nodes that it makes later, as copies to the stack and most comparisons, get the note that stood last
// (Compile::default_node_notes), which is none unless methods were inlined late: then about half of all positions
// between safepoints have the same scope.
func (t *scopeTable) forgetDefault(safepoints map[int32]bool) {
	const few, share = 16, 0.3
	count, total := make(map[int32]int), 0
	usual := int32(noScope)
	for _, at := range t.positions {
		if at.scope == noScope || safepoints == nil || safepoints[at.offset] {
			continue
		}
		total++
		count[at.scope]++
		if usual == noScope || count[at.scope] > count[usual] {
			usual = at.scope
		}
	}
	if total < few || float64(count[usual]) < share*float64(total) {
		return
	}
	t.evidence = nil
	for i, at := range t.positions {
		if at.scope == usual && !safepoints[at.offset] {
			t.positions[i].scope = noScope
		} else {
			t.evidence = append(t.evidence, at)
		}
	}
}
