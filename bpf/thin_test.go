//go:build linux && amd64

package bpf

import (
	"math"
	"testing"

	"github.com/cilium/ebpf"
)

// A share of all ticks is drawn, +-1, at any time. Whatever runs at every Nth tick is drawn as
// often as what runs at others.
func TestThinning(t *testing.T) {
	const (
		runs   = 16
		whole  = 1 << 32 // WHOLE of thinning.bpf.h
		chance = 1e-9    // probability that a test of a right program fails, for each bound
	)
	spec, err := LoadThinTest()
	if err != nil {
		t.Fatal(err)
	}
	var o ThinTestObjects
	needKernel(t, spec.LoadAndAssign(&o, nil))
	defer o.Close()
	for _, test := range []struct {
		name    string
		share   float64
		periods []int
	}{
		{"99 of 250", 99. / 250, []int{2, 5, 250}}, // periods of 5 ticks have strata that differ, of 250 the same again
		{"99 of 1000", 99. / 1000, []int{10, 1000}},
		{"1 of 2", 1. / 2, []int{2, 3, 4}},
		{"1 of 3", 1. / 3, []int{3, 4}},
		{"249 of 250", 249. / 250, []int{250}},
		{"few", 1. / 5000, []int{2}},
		{"all", 1, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			var ticks []uint8 // ticks of all runs: whether they were drawn
			r := ThinTestThinRequest{Share: uint64(math.Round(test.share * whole))}
			for range runs {
				var draws [1 << 16]uint8 // MAX_TICKS of thin_test.bpf.c
				r.Ticks = uint64(len(draws))
				var next ThinTestThinRequest
				if _, err := o.PlayTicks.Run(&ebpf.RunOptions{Context: &r, ContextOut: &next}); err != nil {
					t.Fatal(err)
				}
				r = next
				if err := o.Draws.Lookup(uint32(0), &draws); err != nil {
					t.Fatal(err)
				}
				ticks = append(ticks, draws[:]...)
			}
			drawn := 0
			for i, d := range ticks {
				drawn += int(d)
				if expect := float64(i+1) * test.share; math.Abs(float64(drawn)-expect) > 1.001 { // shares are rounded
					t.Fatalf("%d of %d ticks are drawn, want %.1f", drawn, i+1, expect)
				}
			}
			for _, period := range test.periods {
				rounds := len(ticks) / period
				least, most := binomialBounds(rounds, test.share, chance)
				for at := range period {
					n := 0
					for round := range rounds {
						n += int(ticks[round*period+at])
					}
					if n < least || n > most {
						t.Errorf("tick %d of %d is drawn %d of %d times, want %d to %d", at, period, n, rounds, least,
							most)
					}
				}
			}
		})
	}
}
