package main

import (
	"maps"
	"strings"
	"testing"
)

func TestOnlyOf(t *testing.T) {
	g := javaCalls(map[string]float64{"a b": 1, "c b": 2, "a d": 1})
	part, share := onlyOf(g, map[string]bool{"b": true})
	if part.Len() != 2 || part.Total() != 3 || share != 0.75 {
		t.Errorf("got %d edges, %v calls, %v of all", part.Len(), part.Total(), share)
	}
	if _, share := onlyOf(&javaGraph{}, nil); share != 0 {
		t.Errorf("nothing is %v of nothing", share)
	}
}

func TestWithRates(t *testing.T) {
	seen := javaCalls(map[string]float64{"a b": 1, "c b": 3, "a d": 100})
	truth := javaCalls(map[string]float64{"a b": 40, "a e": 5})
	want := javaCalls(map[string]float64{"a b": 10, "c b": 30, "a d": 0})
	if got := withRates(seen, truth); !maps.Equal(maps.Collect(got.Edges()), maps.Collect(want.Edges())) {
		t.Errorf("got %v", maps.Collect(got.Edges()))
	}
}

func TestDifferences(t *testing.T) {
	found := javaCalls(map[string]float64{"a b": 75, "a c": 25})
	truth := javaCalls(map[string]float64{"a b": 4, "a c": 2, "a d": 2})
	got := differences(found, truth, 2)
	if len(got) != 2 || !strings.Contains(strings.Join(got, "\n"), " 0.00% for  25.00%  a -> d") {
		t.Errorf("got %q", got)
	}
}
