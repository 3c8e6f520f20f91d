package cct

// An Agreement says how many callers of a leaf are the same in all contexts that fit a sample.
type Agreement struct {
	Levels int  // counted from the leaf: 1 is its caller
	Whole  bool // these are all callers, up to the outermost frame, which no Marker stands for
}

// A climb goes up a candidate, from the caller of what is known without it.
type climb[M, S comparable] struct {
	chain *Chain[M, S]
	via   []Activation[M, S]
	at    NodeID // the context whose caller comes after via
}

func (u *climb[M, S]) next() (a Activation[M, S], ok bool) {
	if len(u.via) > 0 {
		a, u.via = u.via[0], u.via[1:]
		return a, true
	}
	n := u.chain.contexts.Node(u.at)
	if u.at = n.Parent; u.at == Root {
		return a, false
	}
	caller := u.chain.contexts.Node(u.at).Key
	return Activation[M, S]{Method: caller.method, Site: n.Key.site, Depth: caller.depth}, true
}

func (c *Chain[M, S]) climb(to *Candidate[M, S]) climb[M, S] {
	return climb[M, S]{chain: c, via: to.Via, at: to.Context}
}

// levels returns how many callers a climb finds, a marker not counted, and whether it ends at an outermost frame.
func (c *Chain[M, S]) levels(to *Candidate[M, S]) (n int, whole bool) {
	n = len(to.Via)
	if to.Context == Root {
		return n, false
	}
	n += c.contexts.Node(to.Context).Depth - 1
	if c.learned[to.Context].cut {
		return max(n-1, 0), false
	}
	return n, true
}

// What is the same caller: that of Agreement in methods, in methods and call sites, and the same frame.
func sameMethod[M, S comparable](a, b Activation[M, S]) bool { return a.Method == b.Method }
func sameCall[M, S comparable](a, b Activation[M, S]) bool {
	return a.Method == b.Method && a.Site == b.Site
}
func sameFrame[M, S comparable](a, b Activation[M, S]) bool { return a == b }

// common returns for how many levels, limit at most, a and b have the same callers.
func (c *Chain[M, S]) common(a, b *Candidate[M, S], limit int, same func(a, b Activation[M, S]) bool) int {
	ups, others := c.climb(a), c.climb(b)
	for n := range limit {
		if len(ups.via) == 0 && len(others.via) == 0 && ups.at == others.at {
			return limit // they meet
		}
		up, ok := ups.next()
		other, alsoOK := others.next()
		if !ok || !alsoOK || !same(up, other) {
			return n
		}
	}
	return limit
}

// agreement compares all leads, of which there is one at least.
func (c *Chain[M, S]) agreement(leads []lead[M, S], same func(a, b Activation[M, S]) bool) Agreement {
	first := &leads[0].Candidate
	levels, whole := c.levels(first)
	all := Agreement{levels, whole}
	for i := range leads[1:] {
		other := &leads[1+i].Candidate
		n, closed := c.levels(other)
		all.Whole = all.Whole && closed && n == levels
		all.Levels = c.common(first, other, min(all.Levels, n), same)
		all.Whole = all.Whole && all.Levels == levels
	}
	return all
}
