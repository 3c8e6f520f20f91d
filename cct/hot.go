package cct

import (
	"cmp"
	"slices"
)

// An Entry is one line of a flat profile.
type Entry[M comparable] struct {
	Key   M
	Self  uint64 // weight while Key was innermost
	Total uint64 // weight while Key was anywhere on the stack, counted once however often it recursed
}

// Hot returns the flat profile of t by groups of frames (by may map to a method, a package, a
// file). The largest Self comes first, then the largest Total, then the order in the tree. Weight
// of Root has no frame and is in no entry.
func Hot[K, M comparable](t *Tree[K], by func(K) M) []Entry[M] {
	var (
		entries []Entry[M]
		index   = make(map[M]int)
		group   = make([]int, t.Len()+1) // for each node, an index into entries
	)
	for id, n := range t.Nodes() {
		if id == Root {
			continue
		}
		key := by(n.Key)
		i, ok := index[key]
		if !ok {
			i = len(entries)
			index[key] = i
			entries = append(entries, Entry[M]{Key: key})
		}
		group[id] = i
		entries[i].Self += n.Self
	}

	// Only the outermost frame of a group adds its subtree, so that recursion is not counted twice.
	// active is the number of frames of each group on the path from Root to the current node.
	var (
		totals = t.Totals()
		active = make([]int, len(entries))
	)
	t.traverse(func(id NodeID) {
		g := group[id]
		if active[g] == 0 {
			entries[g].Total += totals[id]
		}
		active[g]++
	}, func(id NodeID) {
		active[group[id]]--
	})
	SortEntries(entries, func(a, b M) int { return 0 })
	return entries
}

// SortEntries orders entries as Hot does, but by compare where Self and Total are equal. Use it if
// output must not depend on the order of samples.
func SortEntries[M comparable](entries []Entry[M], compare func(a, b M) int) {
	slices.SortStableFunc(entries, func(a, b Entry[M]) int {
		return cmp.Or(cmp.Compare(b.Self, a.Self), cmp.Compare(b.Total, a.Total), compare(a.Key, b.Key))
	})
}

// Hottest returns the n contexts with the largest Self, the largest first and equal ones in the
// order in which they appeared. There may be fewer if fewer have any. Root is not among them, as it
// has no frame.
func (t *Tree[K]) Hottest(n int) []NodeID {
	var ids []NodeID
	for id := NodeID(1); id < t.nodes.used; id++ {
		if t.nodes.at(id).self > 0 {
			ids = append(ids, NodeID(id))
		}
	}
	slices.SortStableFunc(ids, func(a, b NodeID) int { return cmp.Compare(t.nodes.at(b).self, t.nodes.at(a).self) })
	return ids[:min(max(n, 0), len(ids))]
}
