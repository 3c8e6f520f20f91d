package debuginfo

import (
	"slices"
	"sort"
)

// What is known of instructions that have no position of their own. Without DebugNonSafepoints that
// is nearly all of them: HotSpot then records calls and polls only.
//
// The answer is what the places around have in common, as many as neighbours says on each side: if
// all of them are in a method, or in what was inlined into it, so is what lies between. How often
// that is true is measured in docs/measurements/inlined-methods.md. Two sources make the places many and close:
//
//   - C2 leaves its code for the interpreter where something never happened before: a branch that
//     was never taken, a class that was never seen, an index out of bounds. The call that does so
//     is a safepoint, with the scope of the check. The conditional jump to it has the same scope.
//   - Null checks that cost nothing: loads and stores that may fault, in a table with the place
//     that the fault leads to, which is such a call again.

const (
	// neighbours is how many places on each side must agree. With fewer, more is named and more of
	// it is wrong: checks are hoisted out of what they belong to.
	neighbours = 3
	// neighboursComplete is the same where DebugNonSafepoints records all instructions but some.
	neighboursComplete = 1
)

// shared returns the innermost scope that the places around offset have in common.
func (t *Table) shared(offset int32) Place {
	each := neighbours
	if t.Complete {
		each = neighboursComplete
	}
	i := sort.Search(len(t.Evidence), func(i int) bool { return t.Evidence[i].Offset >= offset })
	var paths [][]int32
	for _, at := range t.Evidence[max(i-each, 0):min(i+each, len(t.Evidence))] {
		paths = append(paths, t.path(at.Scope))
	}
	in := Place{Scope: NoScope}
	for depth := 0; len(paths) > 0; depth++ {
		located := true
		for _, path := range paths {
			if depth >= len(path) {
				return in
			}
			first, other := &t.Scopes[paths[0][depth]], &t.Scopes[path[depth]]
			if first.Method != other.Method {
				return in
			}
			located = located && first.BCI == other.BCI
		}
		in = Place{Scope: paths[0][depth], Located: located}
		if !located {
			return in
		}
	}
	return in
}

// path lists a scope and those that it was inlined into, outermost first.
func (t *Table) path(scope int32) []int32 {
	var path []int32
	for ; scope != NoScope && len(path) < MaxInlining; scope = t.Scopes[scope].Sender {
		path = append(path, scope)
	}
	if scope != NoScope { // deeper than any code: what is outermost is not known
		return nil
	}
	slices.Reverse(path)
	return path
}

// ForgetDefault takes their scope from positions that have it by default. C2 notes the scope of
// each node of its graph as it parses. Nodes that it makes later, as copies to the stack and most
// comparisons, get the note that stood last (Compile::default_node_notes), which is none unless
// methods were inlined late: then about half of all positions between safepoints have the same
// scope.
//
// The safepoints are offsets in the code, ascending; nil if they are not known.
func (t *Table) ForgetDefault(safepoints []int32) {
	const few, share = 16, 0.3
	count, total := make(map[int32]int), 0
	usual := int32(NoScope)
	isSafepoint := func(offset int32) bool {
		_, found := slices.BinarySearch(safepoints, offset)
		return found
	}
	for _, at := range t.Positions {
		if at.Scope == NoScope || safepoints == nil || isSafepoint(at.Offset) {
			continue
		}
		total++
		count[at.Scope]++
		if usual == NoScope || count[at.Scope] > count[usual] {
			usual = at.Scope
		}
	}
	if total < few || float64(count[usual]) < share*float64(total) {
		return
	}
	t.Evidence = nil
	for i, at := range t.Positions {
		if at.Scope == usual && !isSafepoint(at.Offset) {
			t.Positions[i].Scope = NoScope
		} else {
			t.Evidence = append(t.Evidence, at)
		}
	}
}
