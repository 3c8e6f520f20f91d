package watch

import (
	"testing"
	"time"
)

func TestHistory(t *testing.T) {
	h := History{{10, 1000}, {20, 1010}, {30, 1010}, {40, 1040}} // the first has all that was before
	for _, test := range []struct{ from, to, want time.Duration }{
		{10, 40, 40}, {10, 20, 10}, {15, 20, 5}, {20, 30, 0}, {35, 40, 15},
		{40, 50, 30}, // as between the last two
		{40, 40, 0}, {40, 10, 0},
	} {
		if got := h.Between(test.from, test.to); got != test.want {
			t.Errorf("from %d to %d: %d, want %d", test.from, test.to, got, test.want)
		}
	}
	for _, short := range []History{nil, {{10, 1000}}} {
		if got := short.Between(0, 100); got != 0 {
			t.Errorf("%v: %v", short, got)
		}
	}
}

// Memory is bounded; what was long ago is known less finely.
func TestHistoryBound(t *testing.T) {
	var h History
	for i := range 3 * maxHistory {
		h.Add(time.Duration(i)*time.Second, time.Second)
	}
	if len(h) > maxHistory {
		t.Errorf("%d readings", len(h))
	}
	if got := h.Between(1000*time.Second, 9000*time.Second); got != 8000*time.Second {
		t.Errorf("%v, want 8000 s", got)
	}
}

func TestGroupsDraw(t *testing.T) {
	c := groupsOf()
	drawn := map[int]int{}
	for range 3000 {
		tid, ok := c.DrawOf(func(group string) bool { return group == "worker-" })
		if !ok {
			t.Fatal("nobody")
		}
		drawn[tid]++
	}
	if drawn[3] > 0 || drawn[1] < 1650 || drawn[1] > 1950 { // 1,800, give or take 27
		t.Errorf("%v, want threads 1 and 2 as 3 to 2", drawn)
	}
	if _, ok := c.DrawOf(func(string) bool { return false }); ok {
		t.Error("a thread of no group")
	}
}

// groupsOf has two threads of one group and one of another, of which the first ran most.
func groupsOf() *Groups {
	g := &Groups{}
	used := map[int]uint64{1: 300, 2: 200, 3: 100, 4: 0}
	names := map[int]string{1: "worker-1", 2: "worker-2", 3: "poller", 4: "idle"}
	g.Update(time.Second, []int{1, 2, 3, 4}, func(tid int) (uint64, error) { return used[tid], nil },
		func(tid int) string { return names[tid] })
	return g
}
