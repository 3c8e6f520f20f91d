package cct

// neighbours finds the contexts of a leaf's method in which its caller, or one of its callees, is at the leaf's depth.
// Links without walks count only if there are no such walks.
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
