package budget

import (
	"testing"
	"time"
)

func TestDuty(t *testing.T) {
	first := func(int) int { return 0 }
	last := func(n int) int { return n - 1 }
	for _, c := range []struct {
		name          string
		slices        int
		within        time.Duration
		length, cycle time.Duration // those of a slice and of a cycle
	}{
		{"as asked", 5, time.Second, 200 * time.Millisecond, time.Second},
		{"two at least", 1, time.Second, 500 * time.Millisecond, time.Second},
		{"slices cannot be that short", 10, 500 * time.Millisecond, ShortestSlice, time.Second},
		{"slices cannot be that long", 3, time.Minute, LongestSlice, 3 * time.Second},
		{"bounded", 1 << 20, time.Second, ShortestSlice, longestCycle},
	} {
		for draw, from := range map[*func(int) int]time.Duration{&first: time.Hour, &last: time.Hour +
			c.cycle - c.length} {
			var d Duty
			d.Start(time.Hour, c.slices, c.within, *draw)
			if d.Always() || d.Length != c.length || d.Cycle() != c.cycle || d.From != from || d.To != from+c.length ||
				d.Weight != float64(d.Slices) {
				t.Errorf("%s: %+v", c.name, d)
			}
		}
	}
	if d := new(Duty); !d.Always() {
		t.Error("the zero value is not observed all the time")
	}
}

// Whether a slice that is too expensive continues is drawn, and later events then have a larger
// weight.
func TestDutyGoesOn(t *testing.T) {
	var d Duty
	d.Start(0, 4, time.Second, func(int) int { return 1 })
	d.Open(300*time.Millisecond, 100)
	if !d.On || d.To != 550*time.Millisecond {
		t.Errorf("a slice that begins late: %+v", d)
	}
	never := func(int) int { t.Error("drawn below the limit"); return 0 }
	if !d.GoesOn(100, never) || d.Weight != 4 {
		t.Errorf("at the limit: %+v", d)
	}
	if !d.GoesOn(350, func(int) int { return 1 }) || d.Weight != 16 || d.Limit != 400 {
		t.Errorf("two draws later: %+v", d)
	}
	if d.GoesOn(401, func(int) int { return 0 }) {
		t.Error("goes on against the draw")
	}
	if d.Over(2 * time.Second) {
		t.Error("over before its slice is done")
	}
	if d.On, d.Done = false, true; d.Over(time.Second-1) || !d.Over(time.Second) {
		t.Error("a cycle of a second is not over after a second")
	}
}
