//go:build linux && amd64

package hotspot

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/breakpoint"
	"github.com/vmprof-agent/vmprof-agent/tests/breakpoints"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
	"github.com/vmprof-agent/vmprof-agent/tests/wait"
)

func callsOf(t *testing.T, g *jvm.Guest) float64 {
	t.Helper()
	answer, err := g.Order("calls")
	if err != nil || len(answer) != 1 {
		t.Fatalf("answer %q, %v", answer, err)
	}
	n, err := strconv.ParseFloat(answer[0], 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// openCounter opens a counter of a method's calls, which the caller closes.
func openCounter(t *testing.T, g *jvm.Guest, m Method, share float64) *Counter {
	t.Helper()
	c, err := OpenCounter(t.Context(), Options{PIDs: []int{g.PID()}, Method: m, Breakpoints: breakpoint.Always,
		Share: share})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// nearTruth reports whether a count is right. At both ends some calls are on either side of the
// line; slices that stop by the hit also stop right after one.
func nearTruth(got Count, truth float64) bool {
	return math.Abs(got.Calls-truth) <= 4*got.Error+0.03*truth
}

// countCalls counts for at least three seconds, a thousand calls and some slices, and returns how
// many calls there were by the program.
func countCalls(t *testing.T, g *jvm.Guest, m Method, share float64) (got Count, truth float64) {
	t.Helper()
	c := openCounter(t, g, m, share)
	defer c.Close()
	await := func(what string, done func(Count) bool) {
		if err := wait.Until(t.Context(), wait.Long, what, func() (bool, error) {
			return done(c.Take()[g.PID()]), c.Err()
		}); err != nil {
			t.Fatalf("nothing is counted: %v, %v", err, c.Notes())
		}
	}
	await("calls", func(n Count) bool { return n.Calls > 0 })
	await("a slice that was not chosen by what it saw", func(n Count) bool { return n.Observed > 0 })
	c.Take()
	before := callsOf(t, g)
	add := func(n Count) {
		truth = callsOf(t, g) - before
		got.Calls, got.Error = got.Calls+n.Calls, math.Hypot(got.Error, n.Error)
		got.Time, got.Observed = got.Time+n.Time, got.Observed+n.Observed
	}
	const seconds, most, leastCalls, leastObserved = 3, 60, 1000, 200 * time.Millisecond
	for n := 1; n <= seconds || (truth < leastCalls || got.Observed < leastObserved) && n <= most; n++ {
		time.Sleep(time.Second) // It is the time that is counted.
		add(c.Take()[g.PID()])
	}
	last, err := c.Finish()
	if err != nil {
		t.Fatal(err)
	}
	add(last[g.PID()])
	return got, truth
}

// What is counted is what the program counts itself: all of it where the budget has room, and
// estimated from a part where it has not.
func TestLiveCounter(t *testing.T) {
	needs.Root(t, "hardware breakpoints")
	breakpoints.Need(t)
	for _, test := range []struct {
		name            string
		mode            string
		rounds, threads int
		share           float64
		whole           bool
		hot             bool // called too often
	}{
		{"all", "work", 1_000_000, 1, 0.5, true, false}, // some 2 ms
		{"thinned", "work", 1_000_000, 1, 0.001, false, false},
		{"often", "work", 300_000, 1, 0.004, false, false}, // some 0.6 ms
		{"too often", "work", 1_000, 1, 0.01, false, true},
		{"mostly idle", "sleeping", 1_000, 1, 0.01, false, false},
		{"more threads than can be watched", "sleeping", 1_000, 400, 0.05, false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := startTimed(t, needs.JDK(t), test.mode, test.rounds, test.threads)
			m, err := ParseMethod("Timed.work")
			if err != nil {
				t.Fatal(err)
			}
			if test.hot {
				c := openCounter(t, g, m, test.share)
				defer c.Close()
				wait.For(t, wait.Long, "the counter gives up", func() bool { c.Take(); return c.Err() != nil })
				if err := c.Err(); !strings.Contains(err.Error(), "is called too often to be counted") {
					t.Errorf("%s: %v", test.name, err)
				}
				return
			}
			got, truth := countCalls(t, g, m, test.share)
			// The error is that of few slices: two of three are right.
			if !nearTruth(got, truth) {
				t.Logf("%s: %.0f ± %.0f calls, %.0f in truth", test.name, got.Calls, got.Error, truth)
				for range 2 {
					if got, truth = countCalls(t, g, m, test.share); !nearTruth(got, truth) {
						t.Errorf("%s: %.0f ± %.0f calls, %.0f in truth", test.name, got.Calls, got.Error, truth)
					}
				}
			}
			share := got.Observed.Seconds() / got.Time.Seconds()
			t.Logf("%s: %.0f ± %.0f calls, %.0f in truth, %.1f %% of the time observed", test.name, got.Calls,
				got.Error, truth, 100*share)
			// A trap takes longer while other virtual machines are busy, and calls are rarer while
			// other programs are.
			if test.whole && share < 0.5 || !test.whole && share > 0.9 {
				t.Errorf("%s: %.1f %% of the time was observed", test.name, 100*share)
			}
			calls := got.Profile(m)
			if calls.Graph.Total() != got.Calls || (calls.Basis == profile.Counted) != (got.Error == 0) {
				t.Errorf("%+v of %+v", calls, got)
			}
		})
	}
}
