package calls

import (
	"math"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// Parts stand for as many calls as the whole, as long as the burst's total grows with every part.
func TestHeldParts(t *testing.T) {
	edge := func(name string) profile.Edge {
		return profile.Edge{Callee: symbol.Intern(symbol.Frame{Function: name})}
	}
	var h Held
	got := map[string]float64{}
	add := func(e profile.Edge, n float64) { got[e.Callee.Value().Function] += n }
	for _, step := range []struct {
		name    string
		samples int
		hand    func()
		want    float64 // calls of samples of that name
		left    int
	}{
		{"nothing", 0, func() { h.HandOut(50, add) }, 0, 0},
		{"first", 2, func() { h.HandOut(100, add) }, 100, 0},
		{"second", 4, func() { h.HandOut(300, add) }, 200, 0},
		{"single", 3, func() { h.HandOutSingly(add) }, 3, 0},
		{"third", 1, func() { h.HandOut(400, add) }, 97, 0},
		{"less than promised", 1, func() { h.HandOut(390, add) }, 0, 0},
		{"dropped", 5, func() {
			if n := h.Drop(); n != 5 {
				t.Errorf("%d samples were dropped, want 5", n)
			}
		}, 0, 0},
		{"held", 1, func() {}, 0, 1},
	} {
		for range step.samples {
			h.Hold(edge(step.name))
		}
		step.hand()
		if n := got[step.name]; math.Abs(n-step.want) > 1e-9 || h.Len() != step.left {
			t.Errorf("%s: %g calls, want %g; %d samples wait, want %d", step.name, n, step.want, h.Len(), step.left)
		}
	}
}

func TestTicks(t *testing.T) {
	for _, test := range []struct {
		ticks           uint32
		toCome, samples float64
		want            float64
	}{
		{1, 0, 64, 1},
		{1, 48, 64, 0.25},
		{100, 32, 64, 99.5},
		{1, 100, 64, 0}, // a longer burst than it is known to be
		{0, 1, 2, 0},
		{3, 1, 0, 3},
	} {
		if got := Ticks(test.ticks, test.toCome, test.samples); got != test.want {
			t.Errorf("Ticks(%d, %g, %g) = %g, want %g", test.ticks, test.toCome, test.samples, got, test.want)
		}
	}
}
