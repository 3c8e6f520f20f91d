package events

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// An allocator allocates objects of three classes for a hundred cycles of time: a common class
// evenly, one in bursts that last a cycle and are far apart, and a rare one. One event in so many
// bytes is recorded, in all the time or in slices.
type allocator struct {
	rng    *rand.Rand
	slices bool // record one slice of five of each cycle, and let it stand for all
}

const (
	allocatedCycles = 100
	slicesOfCycle   = 5
)

var allocatedClasses = []string{"common", "bursts", "rare"}

// events is how many events a class is to be expected to have in a slice of a cycle.
func (a *allocator) events() [3][allocatedCycles * slicesOfCycle]float64 {
	var expected [3][allocatedCycles * slicesOfCycle]float64
	for i := range expected[0] {
		expected[0][i], expected[2][i] = 20, 3./float64(len(expected[2]))
	}
	for range 10 {
		at := a.rng.IntN(len(expected[1]) - 2)
		for i := range 2 {
			expected[1][at+i] += 100
		}
	}
	return expected
}

// run returns what a profile has of each class, and the true shares.
func (a *allocator) run() (e *storedEvents, found [3]tally, truth [3]float64) {
	var rates []float64
	all := 0.
	expected := a.events()
	for cycle := range allocatedCycles {
		chosen := a.rng.IntN(slicesOfCycle)
		rate := 0.
		for slice := range slicesOfCycle {
			for class := range expected {
				mean := expected[class][cycle*slicesOfCycle+slice]
				truth[class] += mean
				all += mean
				if a.slices && slice != chosen {
					continue
				}
				n := poisson(a.rng, mean)
				found[class].events += n
				rate += n
			}
		}
		rates = append(rates, rate)
	}
	weight := 1.
	if a.slices {
		weight = slicesOfCycle
	}
	e = &storedEvents{kind: profile.Allocations, effect: 1}
	chance, sum := 0., 0.
	for class := range found {
		truth[class] /= all
		t := &found[class]
		t.values[1] = weight * t.events
		t.variance = weight * weight * t.events
		chance += t.variance
		sum += t.values[1]
	}
	if !a.slices {
		return e, found, truth
	}
	// The interval of the total by the differences of slices, as the agent states it; then as widen
	// has it.
	squares := 0.
	for i := 1; i < len(rates); i++ {
		squares += (rates[i] - rates[i-1]) * (rates[i] - rates[i-1]) / 2 / float64(len(rates)-1)
	}
	within := normal95 * math.Sqrt(float64(len(rates))*weight*weight*squares)
	e.effect = max(1, within*within/normal95/normal95/chance)
	e.stated = &statedSum{sum: sum, within: within, observed: []string{"observed 20% of the time"}, scaled: true}
	for class := range found {
		found[class].variance *= e.effect
	}
	return e, found, truth
}

func poisson(rng *rand.Rand, mean float64) float64 {
	n, product, limit := 0., 1., math.Exp(-mean)
	for {
		if product *= rng.Float64(); product <= limit {
			return n
		}
		n++
	}
}

// Of 100 profiles at most five have an interval of a class that does not hold the truth, whatever
// the class: rare, or in bursts.
func TestClassIntervals(t *testing.T) {
	const runs = 1000
	for _, slices := range []bool{false, true} {
		a := &allocator{rng: rand.New(rand.NewPCG(1, 2)), slices: slices}
		var written, wrong [3]int
		for range runs {
			e, found, truth := a.run()
			all := found[0]
			all.add(found[1])
			all.add(found[2])
			columns := e.intervalColumns(1, all)
			for class, f := range found {
				if f.events == 0 || len(columns) == 0 || columns[0].cell(f) == "±?" {
					continue
				}
				written[class]++
				if math.Abs(100*f.values[1]/all.values[1]-100*truth[class]) > f.shareInterval(1, all) {
					wrong[class]++
				}
			}
		}
		for class, n := range written {
			const most = 0.05
			share := float64(wrong[class]) / runs
			t.Logf("slices %v: of class %q %d of %d intervals are wrong", slices, allocatedClasses[class], wrong[class],
				n)
			if share > most+4*math.Sqrt(most*(1-most)/runs) {
				t.Errorf("slices %v: %.1f %% of profiles have a wrong interval of class %q", slices, 100*share,
					allocatedClasses[class])
			}
		}
		if !slices && (written[0] != runs || written[1] != runs) {
			t.Errorf("of %v classes %v intervals were written", runs, written)
		}
	}
}
