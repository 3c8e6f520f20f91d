package cct

// ChainStats are the columns of Table 1 of Inoue and Nakatani (OOPSLA 2009) that do not need samples, and what else is
// to be known of a Chain.
type ChainStats struct {
	Contexts int // nodes of the tree
	// Shared are the contexts whose last method stands, at the same depth, below several callers, which differ in method
	// or depth, like D in the paper's Figure 7. Their callees cannot be placed by {method, depth}.
	Shared  int
	Methods int // that the contexts have, markers included
	Links   int // different ones, learned by Walk or Call

	Refused    uint64 // stacks and links from which nothing was learned, since the beginning
	Generation uint64 // how often everything was forgotten
}

// PerMethod returns how many contexts a method has on average.
func (s ChainStats) PerMethod() float64 {
	if s.Methods == 0 {
		return 0
	}
	return float64(s.Contexts) / float64(s.Methods)
}

// Stats counts what is learned, in one pass over the links.
func (c *Chain[M, S]) Stats() ChainStats {
	stats := ChainStats{
		Contexts:   c.contexts.Len(),
		Links:      c.links.len(),
		Refused:    c.refused,
		Generation: c.generation,
	}
	t := &c.links
	for _, at := range t.methods {
		walked := false
		for ; at != noSpot; at = t.spots[at].sibling {
			contexts, callers := 0, 0
			for id := t.spots[at].callers; id != 0; id = t.hops[id].nextCaller {
				if t.hops[id].caller != t.hops[t.spots[at].callers].caller {
					callers = 2 // or more
				}
				contexts += int(t.hops[id].count)
			}
			if callers > 1 && t.spots[at].depth != 0 {
				stats.Shared += contexts
			}
			walked = walked || contexts > 0
		}
		if walked {
			stats.Methods++
		}
	}
	return stats
}
