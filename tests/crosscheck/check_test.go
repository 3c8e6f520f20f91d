package main

import (
	"math"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/tests/events"
)

// Two large samples of one distribution are alike, two small ones less; of one method they are equal.
func TestAlike(t *testing.T) {
	flat := func(methods, samples int) events.Weights {
		w := events.Weights{}
		for i := range methods {
			w[string(rune('a'+i))] = float64(samples) / float64(methods)
		}
		return w
	}
	one, few, many := alike(flat(1, 100), flat(1, 50)), alike(flat(20, 100), flat(20, 100)), alike(flat(20, 100_000), flat(20, 100_000))
	if math.Abs(one-100) > 1e-9 || many < 98 || few < 60 || few > 95 {
		t.Errorf("one method %.1f, few samples %.1f, many %.1f", one, few, many)
	}
}

func TestAgrees(t *testing.T) {
	for _, test := range []struct {
		r  result
		ok bool
	}{
		{result{truth: 100, recorded: 106, within: 4, tolerance: 2}, true},
		{result{truth: 100, recorded: 107, within: 4, tolerance: 2}, false},
		{result{truth: 100, recorded: 50, within: math.Inf(1)}, true},
		{result{truth: 100, recorded: 50, compared: true}, true},
	} {
		if test.r.agrees() != test.ok {
			t.Errorf("%+v", test.r)
		}
	}
}
