package cct_test

import (
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/cct"
)

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

// The heaviest edges get what room there is, and what does not is told.
func TestGraphMergeIntoFullGraph(t *testing.T) {
	full := graph{Limit: 3}
	full.Add(call("a b"), 1)
	more := callGraph(map[string]float64{"a b": 1, "a c": 8, "a d": 4, "a e": 2})
	more.Limit = 4
	more.Add(call("a f"), 16) // overflows there already
	full.Merge(more)
	if got, want := edges(&full), edges(callGraph(map[string]float64{"a b": 2, "a c": 8, "a d": 4})); !maps.Equal(got, want) {
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
