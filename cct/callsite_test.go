package cct_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/cct"
)

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

// Sites lose nothing and tell nothing twice.
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
