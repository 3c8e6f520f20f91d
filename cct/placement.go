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
