package cct

import (
	"cmp"
	"slices"
)

// A lead is a candidate that is still being weighed.
type lead[M, S comparable] struct {
	Candidate[M, S]
	leaf   NodeID // the context of the leaf itself, if it was seen
	weight float64
}

// weigh divides the weight anew by more special evidence than before. The shares so far count as one sample of it.
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

// blend returns the share of what has this weight of total and had this share of before, which is 1, or 0 if there was
// no evidence yet.
func blend(weight, total, share, before float64) float64 {
	if total == 0 {
		return share
	}
	return (weight + share) / (total + before)
}

// unite makes one of several leads to the same context.
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

// settle makes a Placement's candidates of the leads: of different contexts, with shares that sum to 1, the heaviest
// first.
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

// absorb drops leads of walks that ended early and agree with another lead as far as they go: they say nothing that
// the other does not say. Deep recursion has many, as walks end at different levels of it, and all of them agree with
// the one that reaches furthest. If too many are left to compare each with each, they stay.
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

// cut says that the walks which a lead rests on ended early.
func (s *search[M, S]) cut(l lead[M, S]) bool {
	return l.Context != Root && s.chain.learned[l.Context].cut
}

// absorbs says that l was cut and has nothing that other does not have, and is not the one to stay of two that have the
// same: of these it is the one that was learned first.
func (s *search[M, S]) absorbs(other, l *lead[M, S]) bool {
	return s.cut(*l) && s.within(l, other) &&
		!(s.cut(*other) && s.within(other, l) && l.Context <= other.Context)
}

// within says that the callers of a lead, as far as it has them, are the innermost ones of other.
func (s *search[M, S]) within(l, other *lead[M, S]) bool {
	levels, _ := s.chain.levels(&l.Candidate)
	n, _ := s.chain.levels(&other.Candidate)
	return levels <= n && s.chain.common(&l.Candidate, &other.Candidate, levels, sameFrame) == levels
}
