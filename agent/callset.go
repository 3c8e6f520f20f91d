package agent

import (
	"cmp"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/target"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

// maxEdges bounds the edges that a window holds of one process and engine, each about 100 bytes. Calls beyond it are
// counted as discarded.
const maxEdges = 1 << 17

// A rawGraph is a call graph of code versions: a caller is a return address, a callee an entry point. It is named when
// its window closes.
type rawGraph = cct.Graph[target.RawFrame, struct{}]

// A callSet is what a window holds of the sampled calls of one process.
type callSet struct {
	named map[string]*profile.Graph // by engine
	raw   map[string]*rawGraph      // by engine
}

// add folds a call that has names and stands for weight calls. It is false if there is no room for a new edge.
func (s *callSet) add(engine string, e profile.Edge, weight float64) bool {
	if s.named == nil {
		s.named = map[string]*profile.Graph{}
	}
	g := s.named[engine]
	if g == nil {
		g = &profile.Graph{Limit: maxEdges}
		s.named[engine] = g
	}
	return g.Add(e, weight)
}

// addRaw folds a call between two code versions.
func (s *callSet) addRaw(engine string, caller, callee target.RawFrame) bool {
	if s.raw == nil {
		s.raw = map[string]*rawGraph{}
	}
	g := s.raw[engine]
	if g == nil {
		g = &rawGraph{Limit: maxEdges}
		s.raw[engine] = g
	}
	return g.Add(cct.Edge[target.RawFrame, struct{}]{Caller: caller, Callee: callee}, 1)
}

// frames calls f for every code version in the raw graphs.
func (s *callSet) frames(f func(target.RawFrame)) {
	for _, g := range s.raw {
		for e := range g.Edges() {
			f(e.Caller)
			f(e.Callee)
		}
	}
}

// profile names the raw graphs and returns all, by engine.
func (s *callSet) profile(names target.Names, rates map[string]profile.Rate) []*profile.Calls {
	var out []*profile.Calls
	for engine, g := range s.named {
		out = append(out, &profile.Calls{Engine: engine, Rate: rates[engine], Graph: g})
	}
	for engine, raw := range s.raw {
		g := &profile.Graph{Limit: maxEdges}
		for e, n := range raw.Edges() {
			g.Add(nameEdge(names, e.Caller, e.Callee), n)
		}
		out = append(out, &profile.Calls{Engine: engine, Rate: rates[engine], Graph: g})
	}
	slices.SortFunc(out, func(a, b *profile.Calls) int { return cmp.Compare(a.Engine, b.Engine) })
	return out
}

// nameEdge names a call: from the innermost method at its return address to the method whose code was entered.
func nameEdge(names target.Names, caller, callee target.RawFrame) profile.Edge {
	from, to := names.Of(caller), names.Of(callee)
	e := profile.Edge{Caller: target.Marker("[unknown]"), Callee: target.Marker("[unknown]"), Site: profile.Site{Offset: -1}}
	if n := len(to.Symbols); n > 0 {
		e.Callee = target.MethodOf(to.Symbols[n-1])
	}
	for i, s := range from.Symbols {
		if !s.Value().Approximate { // [inlined in M] is no method
			e.Caller, e.Site = target.MethodOf(s), siteOf(from, i)
			break
		}
	}
	return e
}

// siteOf is the place of a name's i-th symbol in its method.
func siteOf(n target.Name, i int) profile.Site {
	line, bci := n.Place(i)
	return profile.Site{Line: line, Offset: bci}
}
