package cct

const (
	// steadyLevels is how many callers of a leaf its link has to tell: as many as the papers count.
	steadyLevels = 3
	// doubtWalks is how many walks in a row must agree with what was expected until a link is trusted that was wrong.
	doubtWalks = 32
)

// Steady reports whether a link finds the first three callers: whether the latest walks with this link on top had those of
// the context that most walks before them had. After one that had others it takes 32 in a row that have not; after the
// first walk it takes Proof. A link that no walk had is steady, as nothing speaks against it.
func (c *Chain[M, S]) Steady(link Link[M, S]) bool {
	leaf := c.links.spot(link.Leaf.Method, link.Leaf.Depth)
	caller := c.links.spot(link.Caller.Method, link.Caller.Depth)
	hop := c.links.hop(leaf, link.Caller.Site, caller)
	return hop == 0 || c.links.hops[hop].doubt == 0
}

// judge compares a walk that ended with this leaf with what was expected of its link.
func (c *Chain[M, S]) judge(leaf NodeID) {
	hop := &c.links.hops[c.learned[leaf].hop]
	switch {
	case hop.heaviest == Root:
		hop.doubt = c.Proof
	case !c.alike(hop.heaviest, leaf):
		hop.doubt = max(doubtWalks, c.Proof)
	case hop.doubt > 0:
		hop.doubt--
	}
	if hop.heaviest == Root || c.contexts.Node(leaf).Self > c.contexts.Node(hop.heaviest).Self {
		hop.heaviest = leaf
	}
}

// alike reports whether two leaves of the same hop have the same callers as far as links have to tell them.
func (c *Chain[M, S]) alike(a, b NodeID) bool {
	const known = 1 // the hop's caller
	x, y := Candidate[M, S]{Context: c.learned[a].parent}, Candidate[M, S]{Context: c.learned[b].parent}
	return c.common(&x, &y, steadyLevels-known, sameCall) == steadyLevels-known
}
