package cct

// MaxCandidates bounds the contexts that a Placement names.
const MaxCandidates = 16

// A Candidate is a context that a sample may belong to. Chain.Stack reads it.
type Candidate[M, S comparable] struct {
	// Via are the frames that links were chained by, innermost first, beginning with the caller of the link's caller.
	Via []Activation[M, S]
	// Context has the frames further out. Its own frame, the innermost, is the last that is known without it: of Via,
	// or the link's caller, or its leaf if the caller is not known. Root: what is further out is not known.
	Context NodeID
	// Share is the part of the sample's weight that belongs here. It may be 0 of a context that was learned without
	// any.
	Share float64

	generation uint64 // in which Context means something
}

// A Placement is where a sample belongs.
type Placement[M, S comparable] struct {
	Fit   Fit
	Basis Basis
	// Candidates are the contexts that fit, the heaviest first. Their shares sum to 1. If there are more than
	// MaxCandidates, the last one stands for all but the heaviest: it has no Via and no Context.
	Candidates []Candidate[M, S]
	// Callers and Methods say in how much of the callers all contexts that fit agree, those that the last candidate
	// stands for included: Callers in methods and call sites, Methods in methods alone, as the paper's nodes have no
	// sites.
	Callers, Methods Agreement
}

// Place finds the contexts that a sample with this link may belong to. It takes what of the following knows any, in
// this order.
//
//	Unique or Ambiguous:
//	  ByLink       the contexts of the caller at its depth in which this site called this leaf at its depth
//	  ByCaller     all contexts of the caller at its depth, whatever it called there
//	  ByPairs      those that come of going up from the caller, one learned link after the other
//	Fitted:
//	  BySite       the contexts of the leaf at its depth below this caller and site, whatever the caller's depth
//	  ByLeaf       all contexts of the leaf at its depth, if the link has no caller
//	  ByNeighbour  the contexts of the leaf next to a frame of the given depth, if the link has no caller
//
// Contexts in which the leaf was seen are preferred to those in which it was not, however hot: the tree has nodes for
// the former only, and the paper maps samples onto nodes. A caller that is known is never disregarded, but for its
// depth. If an event is imprecise, and what was read as its caller may belong to another frame, the link must come
// without.
//
// Several contexts share the weight in proportion to how hot they are, as in the paper and in gprof. What is most
// special counts: where the leaf was seen below its caller, the weight of walks with it on top, then of walks through
// it, then through the caller, then of links to the caller; where it was not, of walks through the caller, then of
// links to it. Each replaces the one behind it to the degree that there is evidence: what is behind weighs as much as
// one sample. Without any weight they share evenly.
//
// Place changes nothing. It looks at no more than 4096 contexts and links, or gives up: ByTooMany.
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

// placement says what was found, with the levels of callers that the link itself has.
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

// Stack appends the frames of a sample in one of the contexts that it was placed in: the leaf, its caller if the link
// has it, and all callers of the caller that are known. A candidate from before the last Purge has lost its Context.
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

// ByDepth tells in how much of the callers of a leaf all contexts agree that the paper's own key, {method, depth},
// would find. Both are zero if it finds none.
func (c *Chain[M, S]) ByDepth(leaf Activation[M, S]) (callers, methods Agreement) {
	s := search[M, S]{chain: c}
	if !s.up(c.links.spot(leaf.Method, leaf.Depth), nil, 1) {
		return Agreement{}, Agreement{}
	}
	p := s.placement(Unique, ByLeaf, 0)
	return p.Callers, p.Methods
}

// Fit says how well a link fits what a Chain has learned.
type Fit uint8

const (
	Unplaced  Fit = iota // nothing is known beyond the link
	Unique               // one context fits, as far as it is known: see Agreement.Whole
	Ambiguous            // several fit: they share the weight
	Fitted               // none fits; there are some if a part of the link is disregarded, which Basis names
)

var fits = [...]string{Unplaced: "unplaced", Unique: "unique", Ambiguous: "ambiguous", Fitted: "fitted"}

// String is the fit in one word.
func (f Fit) String() string { return fits[f] }

// Basis says what the candidates of a Placement rest upon.
type Basis uint8

const (
	// ByNothing: neither walks nor links know the place. Nearby depths are not tried: nothing would explain them.
	ByNothing Basis = iota
	// ByTooMany: there are more contexts than Place looks through.
	ByTooMany
	// ByLink: the leaf was seen below this caller, both at these depths.
	ByLink
	// ByCaller: the caller was seen at its depth, calling other methods or from other sites.
	ByCaller
	// ByPairs: links were chained, above a place where no walk was or in addition to what walks have found there.
	ByPairs
	// BySite: the leaf was seen at its depth below this caller and site, but not with the caller at this depth. As the
	// caller's frame has one size, the depth was not read right, or not at all. Fitted.
	BySite
	// ByLeaf: the caller is not known; the leaf was seen at its depth. This is the paper's own key. Fitted.
	ByLeaf
	// ByNeighbour: neither the caller is known nor was the leaf seen at this depth, but a caller or a callee of it was:
	// the registers are those from after its return or after its call (section 6.2 of the paper). Fitted.
	ByNeighbour
)

var bases = [...]string{
	ByNothing: "nothing", ByTooMany: "too many", ByLink: "link", ByCaller: "caller", ByPairs: "pairs", BySite: "site",
	ByLeaf: "leaf", ByNeighbour: "neighbour",
}

// String is the basis in one word.
func (b Basis) String() string { return bases[b] }

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
