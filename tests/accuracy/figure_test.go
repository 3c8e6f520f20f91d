package main

import (
	"slices"
	"testing"
)

func TestFigure(t *testing.T) {
	for _, test := range []struct {
		f    figure
		used float64
		ok   bool
	}{
		{figure{truth: 100, measured: 100}, 0, true},
		{figure{truth: 100, measured: 97, tolerance: 6}, 0.5, true},
		{figure{truth: 100, measured: 106, tolerance: 6}, 1, true},
		{figure{truth: 100, measured: 112, tolerance: 6}, 2, false},
	} {
		if got := test.f.used(); got != test.used || test.f.ok() != test.ok {
			t.Errorf("%+v uses %v, ok %v", test.f, got, test.f.ok())
		}
	}
	if f := (figure{truth: 100, measured: 99}); f.ok() || f.used() < 1000 {
		t.Errorf("off by one without any tolerance: ok %v, uses %v", f.ok(), f.used())
	}
}

func TestWorst(t *testing.T) {
	got := worst([]figure{
		{group: "a", what: "1", truth: 10, measured: 10, tolerance: 1},
		{group: "b", what: "1", truth: 10, measured: 12, tolerance: 4},
		{group: "a", what: "2", truth: 10, measured: 13, tolerance: 1},
		{group: "a", what: "3", truth: 10, measured: 9, tolerance: 1},
	})
	if len(got) != 2 || got[0].what != "2" || got[1].group != "b" {
		t.Errorf("got %+v", got)
	}
	want := []string{"a: 2", "10", "13", "±1", "MISSED"}
	if cells := got[0].cells(); !slices.Equal(cells, want) {
		t.Errorf("cells %q, want %q", cells, want)
	}
	f := figure{group: "delay", unit: "ms", truth: 1.5, measured: 1.504, tolerance: 0.01}
	if cells := f.cells(); !slices.Equal(cells, []string{"delay", "1.50 ms", "1.50 ms", "±0.01 ms", "ok"}) {
		t.Errorf("cells %q", cells)
	}
}
