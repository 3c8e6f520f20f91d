package cct

// Overlap says how much of the weight of two trees lies in the same contexts: the sum over all contexts of the
// smaller of the two shares, from 0 to 100. Trees with the same shares overlap by 100 whatever their totals; so do
// two empty trees, and an empty one overlaps by 0 with any other.
//
// This is the overlap percentage of calling context trees in Moret, Binder and Villazón, "CCCP: Complete Calling
// Context Profiling in Virtual Execution Environments" (PEPM 2009), section 6.1, which applies the measure of
// Arnold and Ryder (PLDI 2001) to contexts. There the weight is a number of calls; here it is what the trees count.
func Overlap[K comparable](a, b *Tree[K]) float64 {
	if a.total == 0 || b.total == 0 {
		if a.total == b.total {
			return 100
		}
		return 0
	}
	var sum float64
	twins := make([]NodeID, len(a.nodes)) // of each node of a in b; Root for none
	for i := range a.nodes {
		n, id := &a.nodes[i], NodeID(i)
		if id != Root {
			// A context that b does not have has no descendants there either.
			parent := twins[n.parent]
			if n.parent != Root && parent == Root {
				continue
			}
			if twins[id], _, _ = b.find(parent, n.key); twins[id] == Root {
				continue
			}
		}
		sum += min(float64(n.self)/float64(a.total), float64(b.nodes[twins[id]].self)/float64(b.total))
	}
	return min(100*sum, 100) // shares are rounded
}
