package exact

import (
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// Names resolves the methods of a Recording. Their symbols have no line and address, as in every
// profile.Graph.
type Names interface {
	// Method names a method or a marker.
	Method(Method) symbol.Symbol
	// Places returns the methods at a call's place and where in them it is made, innermost first:
	// all but the last were inlined into the next. It returns none if that is no longer known.
	Places(Site) []Place
}

// A Place is a place in a method.
type Place struct {
	Method symbol.Symbol
	Site   profile.Site
}

var unknownSite = profile.Site{Offset: -1}

// Logical returns the calls between methods of the program, inlined ones too. If a callee was
// inlined, HotSpot does not record where its caller called it: the site is unknown.
func Logical(g *Graph, names Names) *profile.Graph {
	return cct.MapGraph(g, func(e cct.Edge[Method, Site]) profile.Edge {
		named := profile.Edge{Caller: names.Method(e.Caller), Site: unknownSite, Callee: names.Method(e.Callee)}
		if e.Site.Inlined || e.Site.Frame == 0 {
			return named
		}
		places := names.Places(e.Site)
		if len(places) == 0 {
			return named
		}
		if e.Caller == Unknown {
			named.Caller = places[0].Method
		}
		// They differ only if deoptimisation replaced the caller's frame after the call began.
		if named.Caller == places[0].Method {
			named.Site = places[0].Site
		}
		return named
	})
}

// Physical returns the calls made by instructions of the caller's own code: from the compiled
// method, whatever was inlined into it, to callees that have a frame. Inlined calls are left out;
// there are far fewer than without the flag: see the package's documentation.
func Physical(g *Graph, names Names) *profile.Graph {
	physical := &profile.Graph{Limit: g.Limit}
	for e, n := range g.Edges() {
		if e.Site.Inlined {
			continue
		}
		named := profile.Edge{Caller: names.Method(e.Caller), Site: unknownSite, Callee: names.Method(e.Callee)}
		if e.Site.Frame != 0 {
			if places := names.Places(e.Site); len(places) > 0 {
				last := places[len(places)-1]
				named.Caller, named.Site = last.Method, last.Site
			}
		}
		physical.Add(named, n)
	}
	return physical
}
