package exact

import (
	"maps"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

func named(name string) symbol.Symbol { return symbol.Intern(symbol.Frame{Function: name}) }

// fixedNames names methods by their addresses, and has these places.
type fixedNames map[bpf.Frame][]Place

func (fixedNames) Method(m Method) symbol.Symbol {
	if text := m.Marker(); text != "" {
		return named(text)
	}
	return named(string(rune(m.Addr)))
}

func (n fixedNames) Places(s Site) []Place { return n[s.Frame] }

func TestGraphs(t *testing.T) {
	method := func(name rune, epoch uint32) Method { return Method{Addr: uint64(name), Epoch: epoch} }
	at := func(line int32) profile.Site { return profile.Site{Line: line, Offset: 10 * line} }
	var g Graph
	for _, e := range []struct {
		caller Method
		site   Site
		callee Method
		calls  float64
	}{
		{method('a', 0), Site{Frame: 1}, method('b', 0), 1}, // a was inlined into r
		// These are the same methods after classes were unloaded.
		{method('a', 5), Site{Frame: 1, Epoch: 5}, method('b', 5), 2},
		{method('a', 0), Site{Frame: 2, Inlined: true}, method('c', 0), 4}, // the place is somewhere in r
		{Unknown, Site{Frame: 1}, method('d', 0), 8},                       // the caller was entered before recording
		{Unknown, Site{}, method('e', 0), 16},                              // nothing is known
		{method('x', 0), Site{Frame: 2}, method('b', 0), 32},               // x was deoptimised
		{method('a', 0), Site{Frame: 3}, method('f', 0), 64},               // the place has no name any more
	} {
		g.Add(cct.Edge[Method, Site]{Caller: e.caller, Site: e.site, Callee: e.callee}, e.calls)
	}
	names := fixedNames{
		1: {{named("a"), at(7)}, {named("r"), at(70)}},
		2: {{named("r"), at(71)}},
	}
	edge := func(caller string, site profile.Site, callee string) profile.Edge {
		return profile.Edge{Caller: named(caller), Site: site, Callee: named(callee)}
	}
	compare(t, "logical", Logical(&g, names), map[profile.Edge]float64{
		edge("a", at(7), "b"):               3,
		edge("a", unknownSite, "c"):         4,
		edge("a", at(7), "d"):               8,
		edge("[unknown]", unknownSite, "e"): 16,
		edge("x", unknownSite, "b"):         32,
		edge("a", unknownSite, "f"):         64,
	})
	compare(t, "physical", Physical(&g, names), map[profile.Edge]float64{
		edge("r", at(70), "b"):              3,
		edge("r", at(70), "d"):              8,
		edge("[unknown]", unknownSite, "e"): 16,
		edge("r", at(71), "b"):              32,
		edge("a", unknownSite, "f"):         64,
	})
}

func compare(t *testing.T, what string, g *profile.Graph, want map[profile.Edge]float64) {
	t.Helper()
	if got := maps.Collect(g.Edges()); !maps.Equal(got, want) {
		t.Errorf("%s: %d edges", what, len(got))
		for e, n := range got {
			t.Logf("%s -> %s at %+v: %v", e.Caller.Value().Function, e.Callee.Value().Function, e.Site, n)
		}
	}
}

func TestMethodFrame(t *testing.T) {
	m := Method{Addr: 0x7f12_3456_7890, Epoch: 3}
	f := m.Frame()
	if f.Kind() != bpf.FrameInterpreted || f.Method() != m.Addr || f.BCI() != -1 {
		t.Errorf("frame %v", f)
	}
	if s := m.Site(); s.Method != m.Addr || s.Epoch != 3 || s.BCI != -1 {
		t.Errorf("site %+v", s)
	}
	for _, marker := range []Method{BeforeRecording, Overflow, Unknown} {
		if marker.Marker() == "" {
			t.Errorf("%+v is no marker", marker)
		}
	}
	if m.Marker() != "" {
		t.Errorf("a method is a marker: %q", m.Marker())
	}
}
