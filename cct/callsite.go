package cct

import (
	"cmp"
	"slices"
)

// GuardedShare is the part of the calls at a site that a method must exceed to be considered for guarded inlining
// there: inlining behind a test that the receiver is the expected one (Arnold & Grove, CGO 2005, section 5.1).
const GuardedShare = 0.4

// A CallSite is a place in a caller with the distribution of what it calls. A virtual call may have several targets.
type CallSite[M, S comparable] struct {
	Caller  M
	Site    S
	Weight  float64     // of all calls made there
	Targets []Target[M] // the heaviest first
}

// A Target is a method that a call site calls.
type Target[M comparable] struct {
	Callee M
	Weight float64
}

// Virtual says that the site was seen to call several methods.
func (s *CallSite[M, S]) Virtual() bool { return len(s.Targets) > 1 }

// Share returns the part of the calls at the site that go to t, from 0 to 1.
func (s *CallSite[M, S]) Share(t Target[M]) float64 {
	if s.Weight == 0 {
		return 0
	}
	return t.Weight / s.Weight
}

// Guarded returns the targets that a compiler should consider for guarded inlining, two at most: those with more than
// GuardedShare of the calls. At a site that is not Virtual this is its only target.
func (s *CallSite[M, S]) Guarded() []Target[M] {
	n := 0
	for n < len(s.Targets) && s.Share(s.Targets[n]) > GuardedShare {
		n++
	}
	return s.Targets[:n:n]
}

// CallSites returns every call site of g, the heaviest first. Equally heavy ones, and equally heavy targets of one,
// are ordered as compare orders their edges.
func (g *Graph[M, S]) CallSites(compare func(a, b Edge[M, S]) int) []CallSite[M, S] {
	type place struct {
		caller M
		site   S
	}
	var (
		sites []CallSite[M, S]
		index = make(map[place]int)
	)
	for _, e := range g.Hottest(compare) {
		at := place{e.Caller, e.Site}
		i, known := index[at]
		if !known {
			i = len(sites)
			index[at] = i
			sites = append(sites, CallSite[M, S]{Caller: e.Caller, Site: e.Site})
		}
		sites[i].Weight += e.Weight
		sites[i].Targets = append(sites[i].Targets, Target[M]{e.Callee, e.Weight})
	}
	// Sites are in the order of their first edges, which compare settled.
	slices.SortStableFunc(sites, func(a, b CallSite[M, S]) int {
		return cmp.Or(cmp.Compare(b.Weight, a.Weight), compare(a.edge(), b.edge()))
	})
	return sites
}

// edge is the heaviest edge of a site, of which there is one.
func (s *CallSite[M, S]) edge() Edge[M, S] { return Edge[M, S]{s.Caller, s.Site, s.Targets[0].Callee} }
