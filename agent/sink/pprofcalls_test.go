package sink_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/sink"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
)

func typesOf(p *pprof.Profile) (types []string) {
	for _, t := range p.SampleType {
		types = append(types, t.Type+"/"+t.Unit)
	}
	return types
}

func TestPprofCallsGolden(t *testing.T) {
	stored := reparse(t, mustPprof(t, shopCalls()))
	golden(t, "calls.pprof.golden", localTime.ReplaceAllString(stored.String(), "Time: (local)"))
}

func TestPprofSampleTypes(t *testing.T) {
	const samples, cpu, count = "samples/count", "cpu/nanoseconds", "calls/count"
	for _, test := range []struct {
		name    string
		convert func() (*pprof.Profile, error)
		types   []string
		first   string
	}{
		{"time", func() (*pprof.Profile, error) { return sink.Pprof(shop()) }, []string{samples, cpu}, "cpu"},
		{"calls", func() (*pprof.Profile, error) { return sink.Pprof(shopCalls()) }, []string{count}, "calls"},
		{"both", func() (*pprof.Profile, error) { return sink.Pprof(shopBoth()) }, []string{samples, cpu, count}, "calls"},
		{"exact", func() (*pprof.Profile, error) { return sink.Pprof(shopExact()) }, []string{count}, "calls"},
		{"nothing", func() (*pprof.Profile, error) { return sink.Pprof(&profile.Profile{}) }, []string{samples, cpu}, "cpu"},
		{"the time of both", func() (*pprof.Profile, error) { return sink.PprofOf(shopBoth(), sink.Time) }, []string{samples, cpu}, "cpu"},
		{"the calls of both", func() (*pprof.Profile, error) { return sink.PprofOf(shopBoth(), sink.CallCounts) }, []string{count}, "calls"},
		{"the calls of time", func() (*pprof.Profile, error) { return sink.PprofOf(shop(), sink.CallCounts) }, []string{count}, "calls"},
		{"the time of exact", func() (*pprof.Profile, error) { return sink.PprofOf(shopExact(), sink.Time) }, []string{samples, cpu}, "cpu"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, err := test.convert()
			if err != nil {
				t.Fatal(err)
			}
			p = reparse(t, p)
			if got := typesOf(p); !slices.Equal(got, test.types) || p.DefaultSampleType != test.first {
				t.Errorf("types %v, first %s, want %v, %s", got, p.DefaultSampleType, test.types, test.first)
			}
		})
	}
}

// A sample is of time or of calls, and both add up to what was recorded.
func TestPprofOfBoth(t *testing.T) {
	var sums [3]int64
	for _, s := range mustPprof(t, shopBoth()).Sample {
		if (s.Value[0] > 0) == (s.Value[2] > 0) || (s.Value[0] > 0) != (s.Value[1] > 0) {
			t.Errorf("values %v", s.Value)
		}
		for i, v := range s.Value {
			sums[i] += v
		}
	}
	if want := [3]int64{141, 141 * 10_000_000, 3502}; sums != want {
		t.Errorf("sums %v, want %v", sums, want)
	}
}

// storedName is what a frame of a call graph is once it was stored.
func storedName(s symbolize.Symbol) sink.Method {
	f := s.Value()
	return sink.Method{Name: f.Function, SystemName: cmpOr(f.SystemName, f.Function)}
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// What is read back is what was written, edge by edge and site by site.
func TestCallsRoundTrip(t *testing.T) {
	p := shopCalls()
	stored, err := sink.CallsOf(reparse(t, mustPprof(t, p)))
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
		if got.Engine != want.Engine || got.Basis != want.Basis.String() || got.Stride != int64(want.Rate.Stride) || got.Samples != int64(want.Rate.Samples) {
			t.Errorf("%+v was made of %+v", got, want)
		}
		graph := cct.MapGraph(want.Graph, func(e profile.Edge) sink.CallEdge {
			return sink.CallEdge{Caller: storedName(e.Caller), Site: e.Site, Callee: storedName(e.Callee)}
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

// Sites that only differ by their offset stay apart, the first and the last offset and none at all included.
func TestCallSitesRoundTrip(t *testing.T) {
	g := new(profile.Graph)
	want := make(map[profile.Site]float64)
	for i, site := range []profile.Site{{Line: 0, Offset: -1}, {Line: 5, Offset: -1}, {Line: 5, Offset: 0}, {Line: 5, Offset: 1}, {Line: 0, Offset: 0}, {Line: math.MaxInt32, Offset: math.MaxInt32}} {
		want[site] = float64(i + 1)
		g.Add(profile.Edge{Caller: symbolize.Intern(shopRun), Site: site, Callee: symbolize.Intern(mapGet)}, want[site])
	}
	p := &profile.Profile{Processes: []*profile.Process{{PID: 1, Calls: []*profile.Calls{{Engine: "page", Graph: g}}}}}
	stored, err := sink.CallsOf(reparse(t, mustPprof(t, p)))
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

// Edges that weigh less than one call are not lost in silence.
func TestPprofTellsOfRareEdges(t *testing.T) {
	stored := mustPprof(t, shopCalls())
	if want := "java (pid 1234): 1 edge left out (engine hotspot, inferred) for less than one call each"; !strings.Contains(strings.Join(stored.Comments, "\n"), want) {
		t.Errorf("no %q in %q", want, stored.Comments)
	}
	// The sum of the graph is 1000.25, of which the edge had the .25.
	if n := len(slices.DeleteFunc(stored.Sample, func(s *pprof.Sample) bool { return s.Value[0] == 0 })); n != 13 {
		t.Errorf("%d samples, want 13", n)
	}
}

func TestPprofCallsRefuses(t *testing.T) {
	for _, weight := range []float64{math.NaN(), math.Inf(1), math.MaxInt64} {
		p := shopCalls()
		p.Processes[0].Calls[0].Graph.Add(profile.Edge{Caller: symbolize.Intern(shopRun), Callee: symbolize.Intern(shopRun)}, weight)
		if stored, err := sink.Pprof(p); stored != nil || err == nil || !strings.Contains(err.Error(), "convert process 1234: convert calls of engine hotspot") {
			t.Errorf("with %v: Pprof = %v, %v", weight, stored, err)
		}
	}
}

// Every call that exact mode counted is in its context.
func TestExactRoundTrip(t *testing.T) {
	stored := reparse(t, mustPprof(t, shopExact()))
	for _, s := range stored.Sample {
		if got := s.Label["engine"][0] + " " + s.Label["basis"][0] + " " + s.Label["thread"][0]; got != "exact counted main" {
			t.Errorf("labels %q", got)
		}
	}
	tree, err := sink.ContextsOf(stored, "calls")
	if err != nil {
		t.Fatal(err)
	}
	want := cct.Map(shopExact().Processes[0].Threads[0].Tree, func(s symbolize.Symbol) []sink.Method { return []sink.Method{storedName(s)} })
	if tree.Total() != 2981 || cct.Overlap(tree, want) < 99.999 {
		t.Errorf("%d calls, overlap %v", tree.Total(), cct.Overlap(tree, want))
	}
	graphs, err := sink.CallsOf(stored)
	if err != nil || len(graphs) != 1 {
		t.Fatalf("CallsOf = %v, %v", graphs, err)
	}
	total, get := storedName(symbolize.Intern(cartTotal)), storedName(symbolize.Intern(mapGet))
	e := sink.CallEdge{Caller: total, Site: profile.Site{Line: 42, Offset: -1}, Callee: get}
	if got := graphs[0].Graph.Weight(e); got != 500 {
		t.Errorf("%v: %v calls, want 500", e, got)
	}
}

// What a timer alone takes for the call graph: the two innermost frames of each sample, inlined ones included. Its
// addresses are of code and tell nothing about sites.
func TestEdgesOfTime(t *testing.T) {
	stored := reparse(t, mustPprof(t, shopBoth()))
	g, err := sink.EdgesOf(stored, "samples")
	if err != nil {
		t.Fatal(err)
	}
	name := func(f symbolize.Frame) sink.Method { return storedName(symbolize.Intern(f)) }
	for _, test := range []struct {
		caller symbolize.Frame
		callee symbolize.Frame
		want   float64
	}{
		{get, getNode, 40}, {checkout, total, 25}, {fib, fib, 10}, {total, get, 0},
	} {
		e := sink.CallEdge{Caller: name(test.caller), Site: profile.Site{Line: int32(test.caller.Line), Offset: -1}, Callee: name(test.callee)}
		if got := g.Weight(e); got != test.want {
			t.Errorf("%s calls %s %v times, want %v", test.caller.Function, test.callee.Function, got, test.want)
		}
	}
	if g.Total() != 141 {
		t.Errorf("%v samples, want 141", g.Total())
	}
	if g, err := sink.EdgesOf(stored, "allocs"); g != nil || err == nil {
		t.Errorf("EdgesOf = %v, %v, want an error", g, err)
	}
}
