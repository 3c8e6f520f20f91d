package stacks_test

import (
	"math"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/stacks"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink/sinktest"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// storedName is what a frame of a call graph is once it was stored.
func storedName(s symbol.Symbol) stacks.Method {
	f := s.Value()
	return stacks.Method{Name: f.Function, SystemName: cmpOr(f.SystemName, f.Function)}
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// What is read back is what was written, edge by edge and site by site.
func TestCallsRoundTrip(t *testing.T) {
	p := sinktest.ShopCalls()
	stored, err := stacks.CallsOf(sinktest.Reparse(t, sinktest.MustPprof(t, p)))
	if err != nil {
		t.Fatal(err)
	}
	var written []*profile.Calls
	for _, proc := range p.Processes {
		written = append(written, proc.Calls...)
	}
	if len(stored) != len(written) {
		t.Fatalf("%d graphs, want %d", len(stored), len(written))
	}
	for i, want := range written {
		got := stored[i]
		if got.Engine != want.Engine || got.Basis != want.Basis.String() || got.Stride != int64(want.Rate.Stride) ||
			got.Samples != int64(want.Rate.Samples) {
			t.Errorf("%+v was made of %+v", got, want)
		}
		graph := cct.MapGraph(want.Graph, func(e profile.Edge) stacks.CallEdge {
			return stacks.CallEdge{Caller: storedName(e.Caller), Site: e.Site, Callee: storedName(e.Callee)}
		})
		if got.Graph.Total() != math.Round(want.Graph.Total()) {
			t.Errorf("%s, %v: %v calls, want %v", got.Engine, want.Basis, got.Graph.Total(), want.Graph.Total())
		}
		for e, weight := range graph.Edges() {
			if got := got.Graph.Weight(e); math.Abs(got-weight) >= 1 {
				t.Errorf("%+v: %v calls, want %v", e, got, weight)
			}
		}
		if overlap := cct.Overlap(got.Graph, graph); overlap < 99.9 {
			t.Errorf("%s, %v: overlap %v with what was written", got.Engine, want.Basis, overlap)
		}
	}
}

// Sites that only differ by their offset stay apart, the first and the last offset and none at all
// included.
func TestCallSitesRoundTrip(t *testing.T) {
	g := new(profile.Graph)
	want := make(map[profile.Site]float64)
	for i, site := range []profile.Site{{Line: 0, Offset: -1}, {Line: 5, Offset: -1}, {Line: 5, Offset: 0},
		{Line: 5, Offset: 1}, {Line: 0, Offset: 0}, {Line: math.MaxInt32, Offset: math.MaxInt32}} {
		want[site] = float64(i + 1)
		g.Add(profile.Edge{Caller: symbol.Intern(sinktest.ShopRun), Site: site, Callee: symbol.Intern(sinktest.MapGet)},
			want[site])
	}
	p := &profile.Profile{Processes: []*profile.Process{{PID: 1, Calls: []*profile.Calls{{Engine: "page", Graph: g}}}}}
	stored, err := stacks.CallsOf(sinktest.Reparse(t, sinktest.MustPprof(t, p)))
	if err != nil {
		t.Fatal(err)
	}
	for e, weight := range stored[0].Graph.Edges() {
		if want[e.Site] != weight {
			t.Errorf("site %+v: %v calls, want %v", e.Site, weight, want[e.Site])
		}
		delete(want, e.Site)
	}
	if len(want) > 0 {
		t.Errorf("lost: %v", want)
	}
}

// Every call that exact mode counted is in its context.
func TestExactRoundTrip(t *testing.T) {
	stored := sinktest.Reparse(t, sinktest.MustPprof(t, sinktest.ShopExact()))
	for _, s := range stored.Sample {
		if got := s.Label["engine"][0] + " " + s.Label["basis"][0] + " " +
			s.Label["thread"][0]; got != "exact counted main" {
			t.Errorf("labels %q", got)
		}
	}
	tree, err := stacks.ContextsOf(stored, "calls")
	if err != nil {
		t.Fatal(err)
	}
	want := cct.Map(sinktest.ShopExact().Processes[0].Threads[0].Tree,
		func(s symbol.Symbol) []stacks.Method { return []stacks.Method{storedName(s)} })
	if tree.Total() != 2981 || cct.Overlap(tree, want) < 99.999 {
		t.Errorf("%d calls, overlap %v", tree.Total(), cct.Overlap(tree, want))
	}
	graphs, err := stacks.CallsOf(stored)
	if err != nil || len(graphs) != 1 {
		t.Fatalf("CallsOf = %v, %v", graphs, err)
	}
	total, get := storedName(symbol.Intern(sinktest.CartTotal)), storedName(symbol.Intern(sinktest.MapGet))
	e := stacks.CallEdge{Caller: total, Site: profile.Site{Line: 42, Offset: -1}, Callee: get}
	if got := graphs[0].Graph.Weight(e); got != 500 {
		t.Errorf("%v: %v calls, want 500", e, got)
	}
}

// A profiler with only a timer takes the two innermost frames of each sample, inlined ones
// included, for the call graph. Addresses in a CPU profile are not those of call sites.
func TestEdgesOfTime(t *testing.T) {
	stored := sinktest.Reparse(t, sinktest.MustPprof(t, sinktest.ShopBoth()))
	g, err := stacks.EdgesOf(stored, "samples")
	if err != nil {
		t.Fatal(err)
	}
	name := func(f symbol.Frame) stacks.Method { return storedName(symbol.Intern(f)) }
	for _, test := range []struct {
		caller symbol.Frame
		callee symbol.Frame
		want   float64
	}{
		{sinktest.Get, sinktest.GetNode, 40}, {sinktest.Checkout, sinktest.Total, 25}, {sinktest.Fib, sinktest.Fib, 10},
		{sinktest.Total, sinktest.Get, 0},
	} {
		e := stacks.CallEdge{Caller: name(test.caller), Site: profile.Site{Line: int32(test.caller.Line), Offset: -1},
			Callee: name(test.callee)}
		if got := g.Weight(e); got != test.want {
			t.Errorf("%s calls %s %v times, want %v", test.caller.Function, test.callee.Function, got, test.want)
		}
	}
	if g.Total() != 141 {
		t.Errorf("%v samples, want 141", g.Total())
	}
	if g, err := stacks.EdgesOf(stored, "allocs"); g != nil || err == nil {
		t.Errorf("EdgesOf = %v, %v, want an error", g, err)
	}
}
