package cct_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/cct"
)

type (
	edge  = cct.Edge[string, int]
	graph = cct.Graph[string, int]
)

// call parses an edge in the form of the tests: "caller callee", with an optional site in between,
// a digit.
func call(text string) edge {
	words := strings.Fields(text)
	e := edge{Caller: words[0], Callee: words[len(words)-1]}
	if len(words) == 3 {
		e.Site = int(words[1][0] - '0')
	}
	return e
}

func callGraph(calls map[string]float64) *graph {
	g := new(graph)
	for text, weight := range calls {
		g.Add(call(text), weight)
	}
	return g
}

func edges(g *graph) map[edge]float64 { return maps.Collect(g.Edges()) }

func compareEdges(a, b edge) int {
	return cmp.Or(cmp.Compare(a.Caller, b.Caller), cmp.Compare(a.Site, b.Site), cmp.Compare(a.Callee, b.Callee))
}

// randomGraph has few methods, so that edges recur. Weights are whole, so that sums do not depend
// on their order.
func randomGraph(r *rand.Rand, adds int) (*graph, map[edge]float64) {
	g, want := new(graph), make(map[edge]float64)
	for range adds {
		e := edge{Caller: string(rune('a' + r.IntN(5))), Site: r.IntN(3), Callee: string(rune('a' + r.IntN(5)))}
		w := float64(r.IntN(100))
		g.Add(e, w)
		want[e] += w
	}
	return g, want
}

func eachRandomGraph(t *testing.T, f func(t *testing.T, r *rand.Rand, g *graph, want map[edge]float64)) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		g, want := randomGraph(r, 100)
		f(t, r, g, want)
		if t.Failed() {
			t.Fatalf("with seed %d", seed)
		}
	}
}

func TestZeroGraph(t *testing.T) {
	var g graph
	if g.Len() != 0 || g.Total() != 0 || g.Overflow() != 0 || g.Weight(call("a b")) != 0 {
		t.Errorf("Len, Total, Overflow, Weight = %d, %v, %v, %v", g.Len(), g.Total(), g.Overflow(),
			g.Weight(call("a b")))
	}
	if len(edges(&g)) != 0 || len(g.Hottest(compareEdges)) != 0 || len(g.CallSites(compareEdges)) != 0 ||
		len(g.Callees()) != 0 {
		t.Errorf("the empty graph lists something")
	}
}

// Caller, site and callee distinguish edges: a graph is a multigraph.
func TestGraphAdd(t *testing.T) {
	eachRandomGraph(t, func(t *testing.T, _ *rand.Rand, g *graph, want map[edge]float64) {
		if got := edges(g); !maps.Equal(got, want) {
			t.Errorf("edges = %v, want %v", got, want)
		}
		var total float64
		for e, w := range want {
			total += w
			if g.Weight(e) != w {
				t.Errorf("Weight(%v) = %v, want %v", e, g.Weight(e), w)
			}
		}
		if g.Total() != total || g.Len() != len(want) {
			t.Errorf("Total, Len = %v, %d, want %v, %d", g.Total(), g.Len(), total, len(want))
		}
	})
}

func TestGraphLimit(t *testing.T) {
	g := graph{Limit: 1}
	if !g.Add(call("a b"), 1) || g.Add(call("a c"), 2) || !g.Add(call("a b"), 4) {
		t.Errorf("Add must refuse new edges of a full graph, and no others")
	}
	if g.Total() != 5 || g.Overflow() != 2 || g.Len() != 1 {
		t.Errorf("Total, Overflow, Len = %v, %v, %d, want 5, 2, 1", g.Total(), g.Overflow(), g.Len())
	}
}

func TestEdgesStopsEarly(t *testing.T) {
	for range callGraph(map[string]float64{"a b": 1, "a c": 1}).Edges() {
		break
	}
}

func TestHottest(t *testing.T) {
	g := callGraph(map[string]float64{"b 1 c": 5, "a 2 c": 5, "a 1 c": 5, "a 1 b": 5, "z z": 7, "a a": 0})
	var got []string
	for _, e := range g.Hottest(compareEdges) {
		got = append(got, e.Caller+string(rune('0'+e.Site))+e.Callee)
	}
	if want := []string{"z0z", "a1b", "a1c", "a2c", "b1c", "a0a"}; !slices.Equal(got, want) {
		t.Errorf("Hottest = %v, want %v", got, want)
	}
}

// Figure 1 of Arnold and Grove: however long M computes between them, it makes both calls equally
// often.
func TestCalleesFigure1(t *testing.T) {
	g := callGraph(map[string]float64{"main 0 M": 1, "M 1 call_1": 1000, "M 2 call_2": 1000, "call_2 3 call_1": 5})
	if got, want := g.Callees(), (cct.Weights[string]{"M": 1, "call_1": 1005, "call_2": 1000}); !maps.Equal(got, want) {
		t.Errorf("Callees = %v, want %v", got, want)
	}
	if got, want := g.Callers(), (cct.Weights[string]{"main": 1, "M": 2000, "call_2": 5}); !maps.Equal(got, want) {
		t.Errorf("Callers = %v, want %v", got, want)
	}
}

func TestGraphMergeAddsEdges(t *testing.T) {
	eachRandomGraph(t, func(t *testing.T, r *rand.Rand, a *graph, want map[edge]float64) {
		b, more := randomGraph(r, 60)
		a.Merge(b)
		for e, w := range more {
			want[e] += w
		}
		if got := edges(a); !maps.Equal(got, want) {
			t.Errorf("edges = %v, want %v", got, want)
		}
		if !maps.Equal(edges(b), more) {
			t.Errorf("Merge changed its argument")
		}
	})
}

func TestGraphMergeSelfAndNil(t *testing.T) {
	g := callGraph(map[string]float64{"a b": 1, "a c": 2})
	g.Merge(nil)
	g.Merge(g)
	if g.Weight(call("a b")) != 2 || g.Weight(call("a c")) != 4 || g.Total() != 6 {
		t.Errorf("edges = %v, total %v, want 2, 4 and 6", edges(g), g.Total())
	}
}

// The heaviest edges get the available room, and the rest is reported as overflow.
func TestGraphMergeIntoFullGraph(t *testing.T) {
	full := graph{Limit: 3}
	full.Add(call("a b"), 1)
	more := callGraph(map[string]float64{"a b": 1, "a c": 8, "a d": 4, "a e": 2})
	more.Limit = 4
	more.Add(call("a f"), 16) // overflows there already
	full.Merge(more)
	if got, want := edges(&full), edges(callGraph(map[string]float64{"a b": 2, "a c": 8, "a d": 4})); !maps.Equal(got,
		want) {
		t.Errorf("edges = %v, want %v", got, want)
	}
	if full.Total() != 14 || full.Overflow() != 18 {
		t.Errorf("Total, Overflow = %v, %v, want 14, 18", full.Total(), full.Overflow())
	}
}

func TestMapGraphDropsSites(t *testing.T) {
	g := callGraph(map[string]float64{"M 1 f": 1, "M 2 f": 2, "M 2 g": 4, "N 2 g": 8})
	mapped := cct.MapGraph(g, func(e edge) cct.Edge[string, struct{}] {
		return cct.Edge[string, struct{}]{Caller: "Class." + e.Caller, Callee: "Class." + e.Callee}
	})
	got := make(map[string]float64)
	for e, w := range mapped.Edges() {
		got[e.Caller+" "+e.Callee] = w
	}
	want := map[string]float64{"Class.M Class.f": 3, "Class.M Class.g": 4, "Class.N Class.g": 8}
	if !maps.Equal(got, want) || mapped.Total() != g.Total() {
		t.Errorf("edges = %v, total %v, want %v and %v", got, mapped.Total(), want, g.Total())
	}
}

// describe writes a site as "M:1 7 f=4 g=3".
func describe(s cct.CallSite[string, int]) string {
	text := fmt.Sprintf("%s:%d %v", s.Caller, s.Site, s.Weight)
	for _, target := range s.Targets {
		text += fmt.Sprintf(" %s=%v", target.Callee, target.Weight)
	}
	return text
}

func TestCallSites(t *testing.T) {
	g := callGraph(map[string]float64{
		"M 1 f": 40, "M 1 g": 60, "M 2 f": 99, "N 1 f": 50, "N 1 g": 50, "O 3 h": 1, "O 4 h": 1,
	})
	var got []string
	for _, s := range g.CallSites(compareEdges) {
		got = append(got, describe(s))
		if s.Virtual() != (len(s.Targets) > 1) {
			t.Errorf("%s: Virtual = %v", describe(s), s.Virtual())
		}
	}
	want := []string{"M:1 100 g=60 f=40", "N:1 100 f=50 g=50", "M:2 99 f=99", "O:3 1 h=1", "O:4 1 h=1"}
	if !slices.Equal(got, want) {
		t.Errorf("CallSites = %q, want %q", got, want)
	}
}

// The rule of section 5.1: only callees with more than 40% of the distribution.
func TestGuarded(t *testing.T) {
	for _, test := range []struct {
		name  string
		calls map[string]float64
		want  []string
	}{
		{"skewed", map[string]float64{"M 1 hot": 90, "M 1 cold": 10}, []string{"hot"}},
		{"two of them", map[string]float64{"M 1 f": 50, "M 1 g": 45, "M 1 h": 5}, []string{"f", "g"}},
		{"exactly 40%", map[string]float64{"M 1 f": 40, "M 1 g": 40, "M 1 h": 20}, nil},
		{"flat", map[string]float64{"M 1 f": 1, "M 1 g": 1, "M 1 h": 1}, nil},
		{"one target", map[string]float64{"M 1 f": 1}, []string{"f"}},
		{"no calls", map[string]float64{"M 1 f": 0, "M 1 g": 0}, nil},
	} {
		var got []string
		for _, s := range callGraph(test.calls).CallSites(compareEdges) {
			for _, target := range s.Guarded() {
				got = append(got, target.Callee)
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: Guarded = %v, want %v", test.name, got, test.want)
		}
	}
}

// Sites lose no edge and repeat none.
func TestCallSitesAreEdges(t *testing.T) {
	eachRandomGraph(t, func(t *testing.T, _ *rand.Rand, g *graph, want map[edge]float64) {
		for _, s := range g.CallSites(compareEdges) {
			var sum float64
			for _, target := range s.Targets {
				e := edge{Caller: s.Caller, Site: s.Site, Callee: target.Callee}
				if weight, ok := want[e]; !ok || weight != target.Weight {
					t.Errorf("%v weighs %v, want %v", e, target.Weight, weight)
				}
				delete(want, e)
				sum += target.Weight
			}
			if sum != s.Weight {
				t.Errorf("%s: targets weigh %v", describe(s), sum)
			}
		}
		if len(want) > 0 {
			t.Errorf("edges of no site: %v", want)
		}
	})
}
