package cct

import "slices"

const (
	// searchSteps bounds the contexts and hops that a search looks at. The most complicated tree in the paper has 53
	// contexts of a method on average (Table 1), at all depths together.
	searchSteps = 4096
	// maxVia bounds the links that are chained. Walks reach further.
	maxVia = 64
)

// A search collects the contexts that a sample may belong to. Each of its methods that look for some returns whether
// there are any, or too many to say.
type search[M, S comparable] struct {
	chain   *Chain[M, S]
	leads   []lead[M, S]
	chained bool // links were chained
	steps   int
}

// step counts what is looked at, and returns false when that was enough.
func (s *search[M, S]) step() bool {
	s.steps++
	return !s.crowded()
}

func (s *search[M, S]) crowded() bool { return s.steps > searchSteps }

func (s *search[M, S]) found() bool { return len(s.leads) > 0 || s.crowded() }

// over finds the contexts of the callers that walks have seen to call over a hop.
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

// up finds the contexts of a method at a depth, which share this part of the weight: those that walks have learned, and
// where links lead to it that no walk went over, those that come of following them upwards.
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

// beyond goes over a hop that no walk has, up to its caller and on from there. Callers are nearer to the base of the
// stack than callees, so it comes to an end.
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
