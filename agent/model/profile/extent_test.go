package profile

import (
	"fmt"
	"math"
	"testing"
)

func TestExtentAdd(t *testing.T) {
	windows := []Extent{
		{Subject: "alloc", What: "allocated bytes", Unit: "bytes", There: 100, Observed: 90,
			Missed: []Missed{{10, "threads ended"}}},
		{Subject: "alloc", What: "allocated bytes", Unit: "bytes", There: 100, Observed: 50,
			Missed: []Missed{{20, "threads ended"}, {30, "no room"}}},
		{Subject: "lock", What: "waits", Unit: "count", There: 4, Observed: 4},
	}
	sum := AddExtents(nil, windows...)
	want := `[{alloc allocated bytes bytes  200 140 [{30 threads ended} {30 no room}]} {lock waits count  4 4 []}]`
	if got := fmt.Sprint(sum); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if first := windows[0].Missed[0].Amount; first != 10 {
		t.Errorf("the first window's own reasons changed: %v", first)
	}
}

func TestExtentGood(t *testing.T) {
	for _, test := range []struct {
		e     Extent
		share float64
		good  bool
	}{
		{Extent{}, 1, true},
		{Extent{There: 100, Observed: 95}, 0.95, true},
		{Extent{There: 1000, Observed: 949}, 0.949, false},
		{Extent{There: 100, Observed: 100, Missed: []Missed{{0, "virtual threads are not followed"}}}, 1, false},
		{Extent{There: 100, Observed: 99, Missed: []Missed{{1, "late"}}}, 0.99, true},
		{Extent{There: math.NaN(), Observed: 1}, 1, true},
		{Extent{There: 1, Observed: 2}, 1, true},
	} {
		if got := test.e.Share(); math.Abs(got-test.share) > 1e-9 || test.e.Good() != test.good {
			t.Errorf("%+v: share %v, good %v; want %v, %v", test.e, got, test.e.Good(), test.share, test.good)
		}
	}
}

// An amount that is unknown once stays unknown, and many reasons are kept as a few.
func TestExtentMiss(t *testing.T) {
	var e Extent
	e.Miss(0, "not followed")
	e.Miss(5, "not followed")
	if !e.Unknown() {
		t.Errorf("%+v: the unknown amount was forgotten", e)
	}
	for i := range 20 {
		e.Miss(float64(i+1), fmt.Sprintf("reason %d", i))
	}
	if len(e.Missed) != maxMissed {
		t.Errorf("%d reasons", len(e.Missed))
	}
	if !e.Unknown() {
		t.Errorf("%+v: the unknown amount was forgotten among others", e)
	}
}
