//go:build linux && amd64

package bpf

import (
	"math"
	"testing"
)

// binomialBounds are the least and the most successes of n at probability p that are not so rare,
// on either side, as chance.
func binomialBounds(n int, p, chance float64) (least, most int) {
	logOf := func(k int) float64 {
		a, _ := math.Lgamma(float64(n + 1))
		b, _ := math.Lgamma(float64(k + 1))
		c, _ := math.Lgamma(float64(n - k + 1))
		return a - b - c + float64(k)*math.Log(p) + float64(n-k)*math.Log1p(-p)
	}
	tail := 0.0
	for least = 0; ; least++ {
		if tail += math.Exp(logOf(least)); tail > chance {
			break
		}
	}
	tail = 0
	for most = n; ; most-- {
		if tail += math.Exp(logOf(most)); tail > chance {
			return least, most
		}
	}
}

// A program may do something else at every second hit, or at every Nth, in step with a rate of one
// in N. What is recorded has both in their proportions: how often one of them is recorded has a
// binomial distribution.
func TestProbeDrawsOfPeriods(t *testing.T) {
	const every, blocks = 8, 1000
	const chance = 1e-7 // probability that a test of a right program fails, for each bound
	for _, test := range []struct {
		name   string
		period int // the hits 0, period, 2*period... are marked
	}{
		{"a hit in two, at an even rate", 2},
		{"a hit in four", 4},
		{"a hit in each block", every},
		{"a period next to the rate's", every + 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			q := newProber(t, Options{RingBytes: 4 << 20})
			pinned(t)
			probe := q.attach(t, q.p.AllocationOutside, every)
			for i := range every * blocks {
				size := uint64(1)
				if i%test.period == 0 {
					size = 2
				}
				probe.hit(arguments{0, 0, size})
			}
			recorded := q.observations(t)
			if len(recorded) != blocks {
				t.Fatalf("%d of %d hits were recorded, want one in %d", len(recorded), every*blocks, every)
			}
			marked := 0
			for _, o := range recorded {
				if o.seen.Values[0] == 2 {
					marked++
				}
			}
			least, most := binomialBounds(blocks, 1/float64(test.period), chance)
			t.Logf("%d of %d recorded hits are marked ones; %d to %d are likely", marked, blocks, least, most)
			if marked < least || marked > most {
				t.Errorf("%d of %d recorded hits are marked ones, want %d to %d", marked, blocks, least, most)
			}
		})
	}
}

// Nobody can know beforehand which hits are recorded: programs that are loaded anew record others.
func TestProbeDrawsDiffer(t *testing.T) {
	const every, hits = 16, 16 * 40
	record := func() (sizes [hits / every]uint64) {
		loaded, err := loadProbing(Options{})
		needKernel(t, err)
		t.Cleanup(func() { loaded.Close() })
		q := newProberOf(t, loaded)
		onCPU(t, cpus(t)[0], func() {
			probe := q.attach(t, q.p.AllocationOutside, every)
			for i := range uint64(hits) {
				probe.hit(arguments{0, 0, i + 1})
			}
		})
		for i, o := range q.observations(t) {
			sizes[i] = o.seen.Values[0]
		}
		return sizes
	}
	if first, second := record(), record(); first == second { // by chance once in 16^40
		t.Errorf("the same hits are recorded twice: %v", first)
	}
}

func TestBinomialBounds(t *testing.T) {
	// Of 10 throws of a coin, 0 or 10 heads are 1/1024 each, 1 or 9 are 10/1024.
	if least, most := binomialBounds(10, 0.5, 1.5/1024); least != 1 || most != 9 {
		t.Errorf("%d to %d, want 1 to 9", least, most)
	}
	if least, most := binomialBounds(10, 0.5, 0.5/1024); least != 0 || most != 10 {
		t.Errorf("%d to %d, want 0 to 10", least, most)
	}
}
