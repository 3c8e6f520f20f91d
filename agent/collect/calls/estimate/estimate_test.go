package estimate

import (
	"fmt"
	"testing"
)

// TestSimulated compares estimates with simulated processes of known rates. The required overlaps
// are a few points below the actual ones, and far above those without one of the sources. With
// exact profiles, rates follow from those of three roots. If all profiles are wrong by a factor of
// more than four, time and breakpoints remain.
func TestSimulated(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long, on one thread")
	}
	for name, tt := range map[string]struct {
		simulated
		listen int     // seconds
		least  float64 // overlap
		gain   float64 // over that of the timer's samples alone
	}{
		"exact profiles":                 {simulated{codes: 300, seconds: 10}, 10, 80, 25},
		"exact profiles, no breakpoints": {simulated{codes: 300, seconds: 10}, 0, 78, 25},
		"a fifth polluted":               {simulated{codes: 300, seconds: 10, polluted: 0.2, shift: 1}, 10, 75, 25},
		"all polluted":                   {simulated{codes: 300, seconds: 10, polluted: 1, shift: 1.5}, 10, 55, 8},
	} {
		t.Run(name, func(t *testing.T) {
			const seeds = 6
			var mean, timer float64
			for seed := range uint64(seeds) {
				what := tt.simulated
				what.seed = seed
				s := newSimulation(what)
				r := s.run(tt.listen)
				o, before := overlap(t, graphOf(r), s.truth()), overlap(t, s.timer(), s.truth())
				t.Logf("seed %d: timer %.1f, estimated %.1f; %s", seed, before, o, r.Credibility.Why)
				mean += o / seeds
				timer += before / seeds
			}
			if mean < tt.least || mean < timer+tt.gain {
				t.Errorf("mean overlap %.1f, want %.0f; timer %.1f, want %.0f more", mean, tt.least, timer, tt.gain)
			}
		})
	}
}

// BenchmarkEstimate measures an estimate of a large process.
func BenchmarkEstimate(b *testing.B) {
	for _, codes := range []int{200, 2000} {
		b.Run(fmt.Sprintf("%d codes", codes), func(b *testing.B) {
			s := newSimulation(simulated{codes: codes, seconds: 60})
			b.ReportMetric(float64(len(s.in.Edges)), "edges")
			for b.Loop() {
				Estimate(s.in, Options{Logical: true})
			}
		})
	}
}

// String is for test messages.
func (e Evidence) String() string {
	if e >= evidences {
		return "unknown"
	}
	return [...]string{"nothing", "time", "profiles", "breakpoints", "counters"}[e]
}
