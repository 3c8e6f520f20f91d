package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/cct"
)

func withoutSites(g *javaGraph) *javaGraph {
	return cct.MapGraph(g, func(e javaEdge) javaEdge {
		e.Site = noSite
		return e
	})
}

// onlyOf returns the part of a graph whose callees are known, and what part of its weight that is, 0 to 1.
func onlyOf(g *javaGraph, callees map[string]bool) (part *javaGraph, share float64) {
	part = &javaGraph{}
	for e, n := range g.Edges() {
		if callees[e.Callee] {
			part.Add(e, n)
		}
	}
	if g.Total() == 0 {
		return part, 0
	}
	return part, part.Total() / g.Total()
}

// withRates returns g with the calls of each callee as truth has them, divided among the callers as g does it.
func withRates(g, truth *javaGraph) *javaGraph {
	out, seen, rates := &javaGraph{}, g.Callees(), truth.Callees()
	for e, n := range g.Edges() {
		out.Add(e, n/seen[e.Callee]*rates[e.Callee])
	}
	return out
}

// absent is how much of g is on edges that are not in truth, in percent.
func absent(g, truth *javaGraph) float64 {
	n := 0.0
	for e, calls := range g.Edges() {
		if truth.Weight(e) == 0 {
			n += calls
		}
	}
	return 100 * n / g.Total()
}

// leastDifference is the difference of two shares that is worth a line.
const leastDifference = 0.001

// differences are the edges whose shares in two graphs differ most, a line each. Sites are left out.
func differences(found, truth *javaGraph, n int) []string {
	apart := map[javaEdge]float64{}
	for e := range truth.Edges() {
		apart[e] = found.Weight(e)/found.Total() - truth.Weight(e)/truth.Total()
	}
	for e, w := range found.Edges() {
		apart[e] = w/found.Total() - truth.Weight(e)/truth.Total()
	}
	edges := make([]javaEdge, 0, len(apart))
	for e, difference := range apart {
		if abs(difference) >= leastDifference {
			edges = append(edges, e)
		}
	}
	slices.SortFunc(edges, func(a, b javaEdge) int {
		return cmp.Or(cmp.Compare(abs(apart[b]), abs(apart[a])), cmp.Compare(a.Caller, b.Caller), cmp.Compare(a.Callee, b.Callee))
	})
	var lines []string
	for _, e := range edges[:min(n, len(edges))] {
		share := truth.Weight(e) / truth.Total()
		lines = append(lines, fmt.Sprintf("%6.2f%% for %6.2f%%  %s -> %s",
			100*(share+apart[e]), 100*share, withoutSignature(e.Caller), withoutSignature(e.Callee)))
	}
	return lines
}

func withoutSignature(name string) string {
	name, _, _ = strings.Cut(name, "(")
	return name
}

func abs(x float64) float64 { return max(x, -x) }
