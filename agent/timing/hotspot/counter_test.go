//go:build linux && amd64

package hotspot

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/attach"
	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/tests/breakpoints"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
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

// What is counted is what the program counts itself: all of it where the budget has room, and estimated from a part where it has not.
func TestLiveCounter(t *testing.T) {
	needs.Root(t, "hardware breakpoints")
	breakpoints.Need(t)
	for _, test := range []struct {
		name   string
		rounds int
		share  float64
		whole  bool
		hot    bool // called too often
	}{
		{"all", 1_000_000, 0.5, true, false}, // some 2 ms
		{"thinned", 1_000_000, 0.001, false, false},
		{"often", 300_000, 0.01, false, false},
		{"too often", 1_000, 0.01, false, true},
	} {
		g := startTimed(t, needs.JDK(t), "work", test.rounds, 1)
		m, err := ParseMethod("Timed.work")
		if err != nil {
			t.Fatal(err)
		}
		c, err := OpenCounter(t.Context(), Options{PIDs: []int{g.PID()}, Method: m, Breakpoints: attach.BreakpointsAlways, Share: test.share})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		for deadline := time.Now().Add(time.Minute); c.Take()[g.PID()].Calls == 0; time.Sleep(100 * time.Millisecond) {
			if test.hot && c.Err() != nil {
				break
			}
			if time.Now().After(deadline) || !test.hot && c.Err() != nil {
				t.Fatalf("%s: nothing is counted: %v, %v", test.name, c.Err(), c.Notes())
			}
		}
		if test.hot {
			if err := c.Err(); err == nil || !strings.Contains(err.Error(), "is called too often to be counted") {
				t.Errorf("%s: %v", test.name, err)
			}
			continue
		}
		c.Take()
		var got Count
		before := callsOf(t, g)
		for truth := 0.0; truth < 1000; {
			time.Sleep(time.Second) // a window
			n := c.Take()[g.PID()]
			truth = callsOf(t, g) - before
			got.Calls, got.Error = got.Calls+n.Calls, math.Hypot(got.Error, n.Error)
			got.Time, got.Observed = got.Time+n.Time, got.Observed+n.Observed
			if truth < 1000 {
				continue
			}
			share := got.Observed.Seconds() / got.Time.Seconds()
			t.Logf("%s: %.0f ± %.0f calls, %.0f in truth, %.1f %% of the time observed", test.name, got.Calls, got.Error, truth, 100*share)
			// At both ends some calls are on either side of the line; slices that stop by the hit also stop right after one.
			if off := math.Abs(got.Calls - truth); off > 4*got.Error+0.03*truth {
				t.Errorf("%s: %.0f ± %.0f calls, %.0f in truth", test.name, got.Calls, got.Error, truth)
			}
			if test.whole == (share < 0.9) {
				t.Errorf("%s: %.1f %% of the time was observed", test.name, 100*share)
			}
		}
		calls := got.Profile(m)
		if calls.Graph.Total() != got.Calls || (calls.Basis == profile.Counted) != (got.Error == 0) {
			t.Errorf("%+v of %+v", calls, got)
		}
	}
}
