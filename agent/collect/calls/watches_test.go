package calls

import "testing"

func TestWatches(t *testing.T) {
	for _, c := range []struct {
		watches Watches
		all     uint64
		want    string
	}{
		{Watches{}, 0, ""},
		{Watches{Complete: 3, Full: 2}, 5, ""},
		{Watches{Complete: 3, Full: 2, Void: 1, Failed: 4}, 10,
			"of 10 watches of breakpoints, 1 void, because the watched code was replaced, 4 failed (see the agent's " +
				"log)"},
		{Watches{Refused: 2, Interrupted: 1, BusyThreads: 5}, 3,
			"of 3 watches of breakpoints, 2 refused, because no thread could be watched, 1 interrupted; " +
				"5 times a thread was left out of a watch, because somebody else uses its debug registers"},
		{Watches{Complete: 1, BusyThreads: 1}, 1,
			"1 time a thread was left out of a watch, because somebody else uses its debug registers"},
	} {
		if got := c.watches.Losses(); got != c.want {
			t.Errorf("%+v: %q, want %q", c.watches, got, c.want)
		}
		var sum uint64
		for _, n := range c.watches.ByOutcome() {
			sum += n
		}
		if all := c.watches.All(); all != c.all || sum != c.all {
			t.Errorf("%+v: %d in all, %d by outcome, want %d", c.watches, all, sum, c.all)
		}
	}
}
