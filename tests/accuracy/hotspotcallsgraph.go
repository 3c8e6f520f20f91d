package main

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	storedstacks "github.com/vmprof-agent/vmprof-agent/agent/view/report/stacks"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
	"github.com/vmprof-agent/vmprof-agent/tests/stacks"
)

// A javaGraph has methods by name and signature, and call sites by bytecode index, noSite if
// unknown.
type (
	javaGraph = cct.Graph[string, int32]
	javaEdge  = cct.Edge[string, int32]
)

const noSite = -1

// notJava is the caller of calls that are not made by a Java method, or by an unknown one.
const notJava = "[VM]"

// generated matches the parts of names that differ from run to run: addresses and numbers of
// classes that the JVM makes.
var generated = regexp.MustCompile(`(\$\$Lambda)(\$\d+)?[/+.]0x[0-9a-f]+|[/+.]0x[0-9a-f]+`)

// comparableName is a method's name, with its signature, in the form common to all runs.
func comparableName(name string) string {
	if strings.HasPrefix(name, "[") {
		return notJava
	}
	return generated.ReplaceAllString(name, "$1")
}

// estimatedCalls returns the calls in a profile: made calls, and with logical also inlined ones.
func estimatedCalls(p *pprof.Profile, logical bool) (*javaGraph, error) {
	all, err := storedstacks.CallsOf(p)
	if err != nil {
		return nil, err
	}
	graph := &javaGraph{}
	for _, c := range all {
		if c.Basis == profile.Inferred.String() && !logical {
			continue
		}
		graph.Merge(cct.MapGraph(c.Graph, func(e storedstacks.CallEdge) javaEdge {
			return javaEdge{
				Caller: comparableName(e.Caller.SystemName), Site: e.Site.Offset,
				Callee: comparableName(e.Callee.SystemName),
			}
		}))
	}
	return graph, nil
}

// exactGraph converts the names of an exact graph to the form of the others.
func exactGraph(g *profile.Graph) *javaGraph {
	name := func(s symbol.Symbol) string { return comparableName(s.Value().SystemName) }
	return cct.MapGraph(g, func(e profile.Edge) javaEdge {
		return javaEdge{Caller: name(e.Caller), Site: e.Site.Offset, Callee: name(e.Callee)}
	})
}

// sampledEdges returns the graph from time samples alone: the two innermost Java frames of each.
// Logical edges connect methods, inlined or not. Physical edges connect code: the callee is the
// compiled method, whatever was inlined into it, and the caller is the method at the call site.
func sampledEdges(p *pprof.Profile, logical bool) *javaGraph {
	g := &javaGraph{}
	value := slices.IndexFunc(p.SampleType, func(t *pprof.ValueType) bool { return t.Type == "samples" })
	for _, s := range p.Sample {
		frames := s.Location
		for len(frames) > 0 && !isJava(frames[0]) {
			frames = frames[1:]
		}
		if value < 0 || s.Value[value] == 0 || len(frames) == 0 {
			continue
		}
		g.Add(topEdge(frames, logical), float64(s.Value[value]))
	}
	return g
}

func isJava(l *pprof.Location) bool {
	return l.Mapping != nil && len(l.Line) > 0 &&
		(strings.HasPrefix(l.Mapping.File, "[jit") || strings.HasPrefix(l.Mapping.File, "[interpreter"))
}

// topEdge is the call on top of a stack with a Java frame at its top. Lines of a location are
// innermost first.
func topEdge(frames []*pprof.Location, logical bool) javaEdge {
	name := func(l pprof.Line) string { return comparableName(l.Function.SystemName) }
	methods := func(l *pprof.Location) []pprof.Line {
		if len(l.Line) > 1 && stacks.InlinedIn(l.Line[0].Function.Name) {
			return l.Line[1:]
		}
		return l.Line
	}
	top := methods(frames[0])
	if logical && len(top) > 1 {
		return javaEdge{Caller: name(top[1]), Site: noSite, Callee: name(top[0])}
	}
	e := javaEdge{Caller: notJava, Site: noSite, Callee: name(top[len(top)-1])}
	if len(frames) > 1 && isJava(frames[1]) {
		e.Caller = name(methods(frames[1])[0])
	}
	return e
}

func withoutSites(g *javaGraph) *javaGraph {
	return cct.MapGraph(g, func(e javaEdge) javaEdge {
		e.Site = noSite
		return e
	})
}

// onlyOf returns the part of a graph with these callees, and its fraction of the weight, 0 to 1.
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

// withRates returns g with the calls of each callee as in truth, divided among the callers as in g.
func withRates(g, truth *javaGraph) *javaGraph {
	out, seen, rates := &javaGraph{}, g.Callees(), truth.Callees()
	for e, n := range g.Edges() {
		out.Add(e, n/seen[e.Callee]*rates[e.Callee])
	}
	return out
}

// absent is how much of g is on edges that truth lacks, in percent.
func absent(g, truth *javaGraph) float64 {
	n := 0.0
	for e, calls := range g.Edges() {
		if truth.Weight(e) == 0 {
			n += calls
		}
	}
	return 100 * n / g.Total()
}

// leastDifference is the least difference of two shares that gets a line.
const leastDifference = 0.001

// differences are the edges whose shares in two graphs differ most, one line each. Sites are left
// out.
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
		return cmp.Or(cmp.Compare(abs(apart[b]), abs(apart[a])), cmp.Compare(a.Caller, b.Caller),
			cmp.Compare(a.Callee, b.Callee))
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
