package fold

import (
	"cmp"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

// MaxEdges bounds the edges that a window holds of one process and engine, each about 100 bytes.
// Calls beyond it count as discarded.
const MaxEdges = 1 << 17

// A RawGraph is a call graph of code versions: a caller is a return address, a callee an entry
// point. It is named when its window closes.
type RawGraph = cct.Graph[guest.RawFrame, struct{}]

// A CallSet is the sampled calls of one process in a window.
type CallSet struct {
	Named map[string]*profile.Graph // graphs of engines that name calls, by engine
	Raw   map[string]*RawGraph      // graphs of the other engines, by engine
	// Counters is the state of the VM's counters at the beginning of the window, for an engine that
	// estimates calls.
	Counters any
}

// Add adds a named call that stands for weight calls. It returns false if there is no room for a
// new edge.
func (s *CallSet) Add(engine string, e profile.Edge, weight float64) bool {
	if s.Named == nil {
		s.Named = map[string]*profile.Graph{}
	}
	g := s.Named[engine]
	if g == nil {
		g = &profile.Graph{Limit: MaxEdges}
		s.Named[engine] = g
	}
	return g.Add(e, weight)
}

// AddRaw adds a call between two code versions. It returns false if there is no room for a new
// edge.
func (s *CallSet) AddRaw(engine string, caller, callee guest.RawFrame) bool {
	if s.Raw == nil {
		s.Raw = map[string]*RawGraph{}
	}
	g := s.Raw[engine]
	if g == nil {
		g = &RawGraph{Limit: MaxEdges}
		s.Raw[engine] = g
	}
	return g.Add(cct.Edge[guest.RawFrame, struct{}]{Caller: caller, Callee: callee}, 1)
}

// Frames calls f for every frame in the raw graphs.
func (s *CallSet) Frames(f func(guest.RawFrame)) {
	for _, g := range s.Raw {
		for e := range g.Edges() {
			f(e.Caller)
			f(e.Callee)
		}
	}
}

// Profile names the raw graphs and returns all graphs, by engine.
func (s *CallSet) Profile(names guest.Names, rates map[string]profile.Rate) []*profile.Calls {
	var out []*profile.Calls
	for engine, g := range s.Named {
		out = append(out, &profile.Calls{Engine: engine, Rate: rates[engine], Graph: g})
	}
	for engine, raw := range s.Raw {
		g := &profile.Graph{Limit: MaxEdges}
		for e, n := range raw.Edges() {
			g.Add(nameEdge(names, e.Caller, e.Callee), n)
		}
		out = append(out, &profile.Calls{Engine: engine, Rate: rates[engine], Graph: g})
	}
	slices.SortFunc(out, func(a, b *profile.Calls) int { return cmp.Compare(a.Engine, b.Engine) })
	return out
}

// nameEdge names a call: from the innermost method at its return address to the method of the
// entered code.
func nameEdge(names guest.Names, caller, callee guest.RawFrame) profile.Edge {
	from, to := names.Lookup(caller), names.Lookup(callee)
	e := profile.Edge{Caller: guest.Marker("[unknown]"), Callee: guest.Marker("[unknown]"),
		Site: profile.Site{Offset: -1}}
	if n := len(to.Symbols); n > 0 {
		e.Callee = guest.MethodOf(to.Symbols[n-1])
	}
	for i, s := range from.Symbols {
		if !s.Value().Approximate { // [inlined in M] is not a method
			e.Caller, e.Site = guest.MethodOf(s), SiteOf(from, i)
			break
		}
	}
	return e
}

// SiteOf returns the place of a name's i-th symbol in its method.
func SiteOf(n guest.Name, i int) profile.Site {
	line, bci := n.Place(i)
	return profile.Site{Line: line, Offset: bci}
}

// CallSite returns the call site of an observed call; classEpoch is how many times the VM had
// unloaded classes.
func CallSite(f bpf.Frame, classEpoch uint32) guest.RawFrame {
	r := guest.RawFrame{Frame: f, Kind: guest.RawReturn}
	if f.Kind() == bpf.FrameInterpreted {
		r.Epoch = classEpoch
	}
	return r
}
