package events

import (
	"math"
	"testing"
)

// Of events of equal weight the interval of a share is that of a binomial distribution.
func TestIntervals(t *testing.T) {
	const weight = 512.0
	events := func(n float64) tally {
		return tally{values: [3]float64{0, n * weight}, events: n, variance: n * weight * weight}
	}
	for _, test := range []struct{ part, rest float64 }{{10, 10}, {25, 75}, {30, 9970}} {
		part, all := events(test.part), events(test.part)
		all.add(events(test.rest))
		n := test.part + test.rest
		s := test.part / n
		if got, want := part.shareInterval(1, all), 196*math.Sqrt(s*(1-s)/n); math.Abs(got-want) > 1e-9 {
			t.Errorf("%v: share ±%v, want ±%v", test, got, want)
		}
	}
	// None of 100 events had another site: what no event met may be 3 % of all (the rule of three).
	if got := events(100).shareInterval(1, events(100)); math.Abs(got-3) > 1e-9 {
		t.Errorf("one site alone has ±%v", got)
	}
	// Bytes without a site may all be of the one or the other.
	part, all := events(100), events(100)
	all.add(tally{values: [3]float64{0, 100 * weight}, unsited: 100 * weight})
	if got := part.shareInterval(1, all); got < 50 || got > 60 {
		t.Errorf("with as much without a site: ±%v", got)
	}
	if nothing := (tally{}); nothing.shareInterval(1, nothing) != 0 {
		t.Error("nothing has an interval")
	}
}
