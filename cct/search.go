package cct

import (
	"cmp"
	"slices"
)

const (
	// searchSteps bounds the contexts and hops that a search examines. The most complicated tree in
	// the paper has 53 contexts of a method on average (Table 1), at all depths together.
	searchSteps = 4096
	// maxVia bounds the chained links. Walks may be longer.
	maxVia = 64
)

// A search collects the contexts that a sample may belong to. Each of its search methods returns
// true if there are any, or too many to count.
type search[M, S comparable] struct {
	chain   *Chain[M, S]
	leads   []lead[M, S]
	chained bool // links were chained
	steps   int
}

// step counts what is examined, and returns false at the limit.
func (s *search[M, S]) step() bool {
	s.steps++
	return !s.crowded()
}

func (s *search[M, S]) crowded() bool { return s.steps > searchSteps }

func (s *search[M, S]) found() bool { return len(s.leads) > 0 || s.crowded() }

// over finds the contexts of the callers that walks observed calling over a hop.
func (s *search[M, S]) over(hops ...hopID) bool {
	c := s.chain
	for _, id := range hops {
		if id == 0 {
			continue
		}
		for leaf := c.links.hops[id].contexts; leaf != Root && s.step(); leaf = c.learned[leaf].next {
			s.leads = append(s.leads, lead[M, S]{
				Candidate: Candidate[M, S]{Context: c.learned[leaf].parent},
				leaf:      leaf,
			})
		}
	}
	if len(s.leads) > 1 {
		s.weigh(func(l *lead[M, S]) float64 {
			caller := &c.learned[l.Context]
			hop := &c.links.hops[caller.hop]
			return float64(hop.calls) * hop.part(caller.walked)
		})
		s.weigh(func(l *lead[M, S]) float64 { return float64(c.learned[l.Context].walked) })
		s.weigh(func(l *lead[M, S]) float64 { return float64(c.learned[l.leaf].walked) })
		s.weigh(func(l *lead[M, S]) float64 { return float64(c.contexts.Node(l.leaf).Self) })
	}
	return s.found()
}

// up finds the contexts of a method at a depth, which share this part of the weight: those that
// walks have learned, and, over hops to it without walks, those found by following links upwards.
func (s *search[M, S]) up(at spotID, via []Activation[M, S], share float64) bool {
	if at == noSpot {
		return false
	}
	c := s.chain
	first := c.links.spots[at].callers
	var walked, calls, hops float64
	for id := first; id != 0 && s.step(); id = c.links.hops[id].nextCaller {
		hop := &c.links.hops[id]
		walked += float64(hop.walked)
		calls += float64(hop.calls)
		hops++
	}
	for id := first; id != 0 && s.step(); id = c.links.hops[id].nextCaller {
		hop := &c.links.hops[id]
		part := 1 / hops
		if calls+walked > 0 {
			part = blend(float64(hop.calls), calls, 0, 0)
			part = blend(float64(hop.walked), walked, part, min(calls, 1))
		}
		if hop.contexts != Root {
			s.walked(hop, via, share*part)
		} else {
			s.beyond(hop, via, share*part)
		}
	}
	return first != 0
}

// walked adds the contexts of a hop's callee.
func (s *search[M, S]) walked(hop *hopRecord[S], via []Activation[M, S], share float64) {
	c := s.chain
	for id := hop.contexts; id != Root && s.step(); id = c.learned[id].next {
		part := share * hop.part(c.learned[id].walked)
		s.leads = append(s.leads, lead[M, S]{Candidate: Candidate[M, S]{Via: via, Context: id, Share: part}})
	}
}

// beyond follows a hop without walks up to its caller and onwards. Callers are nearer to the base
// of the stack than callees, so it terminates.
func (s *search[M, S]) beyond(hop *hopRecord[S], via []Activation[M, S], share float64) {
	s.chained = true
	spots := s.chain.links.spots
	caller := &spots[hop.caller]
	via = append(slices.Clip(via), Activation[M, S]{Method: caller.method, Site: hop.site, Depth: caller.depth})
	if len(via) < maxVia && caller.depth < spots[hop.callee].depth && s.up(hop.caller, via, share) {
		return
	}
	s.leads = append(s.leads, lead[M, S]{Candidate: Candidate[M, S]{Via: via, Share: share}})
}

// site finds the contexts of a caller, whatever its depth, that call leaf from the caller's site.
func (s *search[M, S]) site(leaf spotID, caller Activation[M, S]) bool {
	if leaf == noSpot {
		return false
	}
	t := &s.chain.links
	var hops []hopID
	for id := t.spots[leaf].callers; id != 0 && s.step(); id = t.hops[id].nextCaller {
		hop := &t.hops[id]
		if hop.site == caller.Site && hop.caller != noSpot && t.spots[hop.caller].method == caller.Method {
			hops = append(hops, id)
		}
	}
	return s.over(hops...)
}

// A lead is a candidate whose share is not final.
type lead[M, S comparable] struct {
	Candidate[M, S]
	leaf   NodeID // the context of the leaf itself, if it was observed
	weight float64
}

// weigh divides the weight again by more specific evidence. The earlier shares count as one sample
// of it.
func (s *search[M, S]) weigh(evidence func(*lead[M, S]) float64) {
	var total, before float64
	for i := range s.leads {
		l := &s.leads[i]
		l.weight = evidence(l)
		total += l.weight
		before += l.Share
	}
	for i := range s.leads {
		l := &s.leads[i]
		l.Share = blend(l.weight, total, l.Share, before)
	}
}

// blend returns the share for this weight of total, given the earlier share. before is 1, or 0 if
// there was no evidence yet.
func blend(weight, total, share, before float64) float64 {
	if total == 0 {
		return share
	}
	return (weight + share) / (total + before)
}

// unite merges leads to the same context.
func (s *search[M, S]) unite() {
	slices.SortFunc(s.leads, func(a, b lead[M, S]) int { return cmp.Compare(a.Context, b.Context) })
	one := s.leads[:0]
	for _, l := range s.leads {
		if n := len(one); n > 0 && one[n-1].Context == l.Context {
			one[n-1].weight += l.weight
			continue
		}
		one = append(one, l)
	}
	s.leads = one
}

// settle turns the leads into a Placement's candidates: of different contexts, with shares that sum
// to 1, the heaviest first.
func (s *search[M, S]) settle() {
	s.absorb()
	var total float64
	for i := range s.leads {
		total += s.leads[i].Share
	}
	for i := range s.leads {
		l := &s.leads[i]
		if total > 0 {
			l.Share /= total
		} else {
			l.Share = 1 / float64(len(s.leads))
		}
		l.generation = s.chain.generation
	}
	slices.SortStableFunc(s.leads, func(a, b lead[M, S]) int { return cmp.Compare(b.Share, a.Share) })
}

// absorb drops leads of truncated walks that agree with another lead as far as they go: they add no
// information. Deep recursion has many of them, as walks end at different levels of it, and all of
// them agree with the longest one. If too many are left to compare all pairs, they stay.
func (s *search[M, S]) absorb() {
	if len(s.leads) < 2 || !slices.ContainsFunc(s.leads, s.cut) {
		return
	}
	furthest, most := s.leads[0], -1
	for _, l := range s.leads {
		if n, whole := s.chain.levels(&l.Candidate); n > most || n == most && whole {
			furthest, most = l, n
		}
	}
	s.leads = slices.DeleteFunc(s.leads, func(l lead[M, S]) bool { return s.absorbs(&furthest, &l) })
	if left := len(s.leads); left*left > searchSteps {
		return
	}
	all := slices.Clone(s.leads)
	s.leads = slices.DeleteFunc(s.leads, func(l lead[M, S]) bool {
		return slices.ContainsFunc(all, func(other lead[M, S]) bool { return s.absorbs(&other, &l) })
	})
}

// cut reports whether the walks behind a lead ended early.
func (s *search[M, S]) cut(l lead[M, S]) bool {
	return l.Context != Root && s.chain.learned[l.Context].cut
}

// absorbs reports whether l was cut and other contains it. Of two that are equal, the one that was
// learned first stays.
func (s *search[M, S]) absorbs(other, l *lead[M, S]) bool {
	return s.cut(*l) && s.within(l, other) &&
		!(s.cut(*other) && s.within(other, l) && l.Context <= other.Context)
}

// within reports whether the callers of a lead, as far as it has them, are the innermost ones of
// other.
func (s *search[M, S]) within(l, other *lead[M, S]) bool {
	levels, _ := s.chain.levels(&l.Candidate)
	n, _ := s.chain.levels(&other.Candidate)
	return levels <= n && s.chain.common(&l.Candidate, &other.Candidate, levels, sameFrame) == levels
}

// neighbours finds the contexts of a leaf's method in which its caller, or one of its callees, is
// at the leaf's depth. Links without walks count only if there are no such walks.
func (s *search[M, S]) neighbours(leaf Activation[M, S]) bool {
	type way struct {
		hop    hopID
		callee bool // the leaf is the caller of this hop
	}
	var (
		t     = &s.chain.links
		pairs []way
		calls float64
	)
	add := func(id hopID, callee bool) {
		hop := &t.hops[id]
		if hop.contexts == Root {
			pairs = append(pairs, way{id, callee})
			calls += float64(hop.calls)
		}
		for at := hop.contexts; at != Root && s.step(); at = s.chain.learned[at].next {
			known := &s.chain.learned[at]
			l := lead[M, S]{Candidate: Candidate[M, S]{Context: at}, weight: float64(known.walked)}
			if callee {
				l.Context = known.parent
			}
			s.leads = append(s.leads, l)
		}
	}
	for at := t.methods[leaf.Method]; at != noSpot && s.step(); at = t.spots[at].sibling {
		if t.spots[at].depth == 0 {
			continue
		}
		for id := t.spots[at].callers; id != 0 && s.step(); id = t.hops[id].nextCaller {
			if t.spots[t.hops[id].caller].depth == leaf.Depth {
				add(id, false)
			}
		}
		for id := t.spots[at].callees; id != 0 && s.step(); id = t.hops[id].nextCallee {
			if t.spots[t.hops[id].callee].depth == leaf.Depth {
				add(id, true)
			}
		}
	}
	if len(s.leads) > 0 {
		s.unite()
		s.weigh(func(l *lead[M, S]) float64 { return l.weight })
		return true
	}
	for _, way := range pairs {
		hop := &t.hops[way.hop]
		share := 1 / float64(len(pairs))
		if calls > 0 {
			share = float64(hop.calls) / calls
		}
		if way.callee {
			s.up(hop.caller, nil, share)
		} else {
			s.beyond(hop, nil, share)
		}
	}
	return s.found()
}
