package cct

// MaxCandidates bounds the contexts listed in a Placement.
const MaxCandidates = 16

// A Candidate is a context that a sample may belong to. Chain.Stack reads it.
type Candidate[M, S comparable] struct {
	// Via are the frames from chained links, innermost first, beginning with the caller of the
	// link's caller.
	Via []Activation[M, S]
	// Context has the frames further out. Its own innermost frame is the last one that is known
	// without it: of Via, or the link's caller, or its leaf if the caller is unknown. Root: the
	// frames further out are unknown.
	Context NodeID
	// Share is the fraction of the sample's weight for this candidate. It may be 0 for a context
	// that was learned without weight.
	Share float64

	generation uint64 // generation in which Context is valid
}

// A Placement is the contexts that a sample may belong to.
type Placement[M, S comparable] struct {
	Fit   Fit
	Basis Basis
	// Candidates are the contexts that fit, the heaviest first. Their shares sum to 1. If there are
	// more than MaxCandidates, the last one stands for all others: it has no Via and no Context.
	Candidates []Candidate[M, S]
	// Callers and Methods say for how many callers all contexts that fit agree, including those
	// that the last candidate stands for. Callers compares methods and call sites, Methods only
	// methods, as the paper's nodes have no sites.
	Callers, Methods Agreement
}

// Place finds the contexts that a sample with this link may belong to. It uses the first of the
// following that finds any.
//
//	Unique or Ambiguous:
//	  ByLink       the contexts of the caller at its depth in which this site called this leaf at its depth
//	  ByCaller     all contexts of the caller at its depth, whatever it called there
//	  ByPairs      those found by following learned links upwards from the caller
//	Fitted:
//	  BySite       the contexts of the leaf at its depth below this caller and site, whatever the caller's depth
//	  ByLeaf       all contexts of the leaf at its depth, if the link has no caller
//	  ByNeighbour  the contexts of the leaf next to a frame of the given depth, if the link has no caller
//
// Contexts with the leaf are preferred to those without, however hot: the tree has nodes for the
// former only, and the paper maps samples to nodes. A known caller is never ignored, except for its
// depth. If an event is imprecise, so that the caller may belong to another frame, the link must be
// passed without it.
//
// Several contexts share the weight in proportion to how hot they are, as in the paper and in
// gprof. The most specific evidence counts. If the leaf was observed below its caller, that is the
// weight of walks with it on top, then of walks through it, then through the caller, then of links
// to the caller. Otherwise it is the weight of walks through the caller, then of links to it. Each
// replaces the next one to the degree that there is evidence: the less specific one weighs as much
// as one sample. Without any weight they share evenly.
//
// Place changes nothing. It examines at most 4096 contexts and links, then it gives up: ByTooMany.
func (c *Chain[M, S]) Place(link Link[M, S]) Placement[M, S] {
	s := search[M, S]{chain: c}
	leaf := c.links.spot(link.Leaf.Method, link.Leaf.Depth)
	if !link.called() {
		switch {
		case s.up(leaf, nil, 1):
			return s.placement(Fitted, ByLeaf, 0)
		case link.Leaf.Depth != 0 && s.neighbours(link.Leaf):
			return s.placement(Fitted, ByNeighbour, 0)
		}
		return s.placement(Unplaced, ByNothing, 0)
	}
	caller := c.links.spot(link.Caller.Method, link.Caller.Depth)
	switch {
	case caller != noSpot && s.over(c.links.hop(leaf, link.Caller.Site, caller)):
		return s.placement(Unique, ByLink, 1)
	case s.up(caller, nil, 1):
		if s.chained {
			return s.placement(Unique, ByPairs, 1)
		}
		return s.placement(Unique, ByCaller, 1)
	case s.site(leaf, link.Caller):
		return s.placement(Fitted, BySite, 1)
	}
	return s.placement(Unplaced, ByNothing, 1)
}

// placement returns the result of the search; levels is the number of callers in the link itself.
func (s *search[M, S]) placement(fit Fit, basis Basis, levels int) Placement[M, S] {
	switch {
	case s.crowded():
		s.leads, fit, basis = nil, Unplaced, ByTooMany
	case len(s.leads) > 0:
		s.settle()
	}
	p := Placement[M, S]{Fit: fit, Basis: basis}
	if len(s.leads) > 0 {
		p.Callers = s.chain.agreement(s.leads, sameCall)
		p.Methods = s.chain.agreement(s.leads, sameMethod)
	}
	p.Callers.Levels += levels
	p.Methods.Levels += levels
	if fit == Unique && len(s.leads) > 1 {
		p.Fit = Ambiguous
	}
	p.Candidates = make([]Candidate[M, S], 0, min(len(s.leads), MaxCandidates))
	for i := range s.leads {
		if i < MaxCandidates {
			p.Candidates = append(p.Candidates, s.leads[i].Candidate)
			continue
		}
		rest := &p.Candidates[MaxCandidates-1]
		*rest = Candidate[M, S]{Share: rest.Share + s.leads[i].Share}
	}
	return p
}

// Stack appends the frames of a sample in one of its candidate contexts: the leaf, its caller if
// the link has it, and all known callers of the caller. A candidate from before the last Purge has
// lost its Context.
func (c *Chain[M, S]) Stack(dst []Activation[M, S], link Link[M, S], to Candidate[M, S]) []Activation[M, S] {
	dst = append(dst, link.Leaf)
	if link.called() {
		dst = append(dst, link.Caller)
	}
	dst = append(dst, to.Via...)
	if to.generation != c.generation || int(to.Context) >= len(c.learned) {
		return dst
	}
	up := climb[M, S]{chain: c, at: to.Context}
	for {
		a, ok := up.next()
		if !ok {
			break
		}
		dst = append(dst, a)
	}
	return dst
}

// ByDepth returns for how many callers of a leaf all contexts with the paper's own key, {method,
// depth}, agree. Both results are zero if it finds none.
func (c *Chain[M, S]) ByDepth(leaf Activation[M, S]) (callers, methods Agreement) {
	s := search[M, S]{chain: c}
	if !s.up(c.links.spot(leaf.Method, leaf.Depth), nil, 1) {
		return Agreement{}, Agreement{}
	}
	p := s.placement(Unique, ByLeaf, 0)
	return p.Callers, p.Methods
}

// Fit is how well a link fits what a Chain has learned.
type Fit uint8

const (
	Unplaced  Fit = iota // nothing is known beyond the link
	Unique               // one context fits, as far as it is known: see Agreement.Whole
	Ambiguous            // several fit: they share the weight
	Fitted               // none fits; some do if a part of the link is ignored, which Basis names
)

var fits = [...]string{Unplaced: "unplaced", Unique: "unique", Ambiguous: "ambiguous", Fitted: "fitted"}

// String is the fit in one word.
func (f Fit) String() string { return fits[f] }

// Basis is the evidence for the candidates of a Placement.
type Basis uint8

const (
	// ByNothing: neither walks nor links know the place. Nearby depths are not tried, as nothing
	// would justify them.
	ByNothing Basis = iota
	// ByTooMany: there are more contexts than Place examines.
	ByTooMany
	// ByLink: the leaf was observed below this caller, both at these depths.
	ByLink
	// ByCaller: the caller was observed at its depth, calling other methods or from other sites.
	ByCaller
	// ByPairs: links were chained, above a place without walks or in addition to what walks found
	// there.
	ByPairs
	// BySite: the leaf was observed at its depth below this caller and site, but not with the
	// caller at this depth. As the caller's frame has one size, the depth was read wrongly, or not
	// at all. Fitted.
	BySite
	// ByLeaf: the caller is unknown; the leaf was observed at its depth. This is the paper's own
	// key. Fitted.
	ByLeaf
	// ByNeighbour: the caller is unknown and the leaf was not observed at this depth, but a caller
	// or a callee of it was: the registers are those from after its return or after its call
	// (section 6.2 of the paper). Fitted.
	ByNeighbour
)

var bases = [...]string{
	ByNothing: "nothing", ByTooMany: "too many", ByLink: "link", ByCaller: "caller", ByPairs: "pairs", BySite: "site",
	ByLeaf: "leaf", ByNeighbour: "neighbour",
}

// String is the basis in one word.
func (b Basis) String() string { return bases[b] }

// An Agreement is how many callers of a leaf are the same in all contexts that fit a sample.
type Agreement struct {
	Levels int  // counted from the leaf: 1 is its caller
	Whole  bool // these are all callers, up to an outermost frame that is not a Marker
}

// A climb walks up a candidate, beginning with the caller of its last frame known otherwise.
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

// levels returns how many callers a climb finds, a marker not counted, and whether it ends at an
// outermost frame.
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

// Equality of callers: by methods, by methods and call sites (both for Agreement), and as the same
// frame.
func sameMethod[M, S comparable](a, b Activation[M, S]) bool { return a.Method == b.Method }
func sameCall[M, S comparable](a, b Activation[M, S]) bool {
	return a.Method == b.Method && a.Site == b.Site
}
func sameFrame[M, S comparable](a, b Activation[M, S]) bool { return a == b }

// common returns for how many levels, at most limit, a and b have the same callers.
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

// agreement compares all leads, of which there is at least one.
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
