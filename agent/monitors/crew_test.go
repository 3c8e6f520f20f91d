package monitors

import (
	"testing"
	"time"
)

func TestHistory(t *testing.T) {
	h := history{{10, 1000}, {20, 1010}, {30, 1010}, {40, 1040}} // the first has all that was before
	for _, test := range []struct{ from, to, want time.Duration }{
		{10, 40, 40}, {10, 20, 10}, {15, 20, 5}, {20, 30, 0}, {35, 40, 15},
		{40, 50, 30}, // as between the last two
		{40, 40, 0}, {40, 10, 0},
	} {
		if got := h.between(test.from, test.to); got != test.want {
			t.Errorf("from %d to %d: %d, want %d", test.from, test.to, got, test.want)
		}
	}
	for _, short := range []history{nil, {{10, 1000}}} {
		if got := short.between(0, 100); got != 0 {
			t.Errorf("%v: %v", short, got)
		}
	}
}

// Memory is bounded; what was long ago is known less finely.
func TestHistoryBound(t *testing.T) {
	var h history
	for i := range 3 * maxHistory {
		h.add(time.Duration(i)*time.Second, time.Second)
	}
	if len(h) > maxHistory {
		t.Errorf("%d readings", len(h))
	}
	if got := h.between(1000*time.Second, 9000*time.Second); got != 8000*time.Second {
		t.Errorf("%v, want 8000 s", got)
	}
}

func TestCrewDraw(t *testing.T) {
	c := crewOf(t)
	drawn := map[int]int{}
	for range 3000 {
		tid, ok := c.draw(func(group string) bool { return group == "worker-" })
		if !ok {
			t.Fatal("nobody")
		}
		drawn[tid]++
	}
	if drawn[3] > 0 || drawn[1] < 1650 || drawn[1] > 1950 { // 1,800, give or take 27
		t.Errorf("%v, want threads 1 and 2 as 3 to 2", drawn)
	}
	if _, ok := c.draw(func(string) bool { return false }); ok {
		t.Error("a thread of no group")
	}
}
