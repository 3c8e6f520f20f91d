package tests

import (
	"cmp"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/tests/events"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
)

// A slowCall is a call as a recording has it.
type slowCall struct {
	start, length time.Duration // CLOCK_MONOTONIC
	end           string
	byCause       map[string]time.Duration
}

// slowCalls reads the slowest calls, the slowest first.
func slowCalls(t *testing.T, p *profile.Profile) []slowCall {
	t.Helper()
	booted := time.Now().Add(-proc.Monotonic())
	value := column(t, p, "slow")
	calls := map[int64]*slowCall{}
	for _, s := range p.Sample {
		if value(s) == 0 {
			continue
		}
		n := s.NumLabel["call"][0]
		c := calls[n]
		if c == nil {
			at, err := time.Parse(time.RFC3339Nano, s.Label["start"][0])
			if err != nil {
				t.Fatal(err)
			}
			c = &slowCall{start: at.Sub(booted), end: s.Label["end"][0], byCause: map[string]time.Duration{}}
			calls[n] = c
		}
		c.length += time.Duration(value(s))
		c.byCause[s.Label["cause"][0]] += time.Duration(value(s))
	}
	var list []slowCall
	for n := int64(1); n <= int64(len(calls)); n++ {
		if calls[n] == nil {
			t.Fatalf("%d slow calls, and none has the number %d", len(calls), n)
		}
		list = append(list, *calls[n])
	}
	return list
}

// The slowest calls are found, each as long as the program says, and for the causes that it says.
func TestRecordSlow(t *testing.T) { onEveryJDK(t, recordSlow) }

func recordSlow(t *testing.T, jdk jvm.JDK) {
	guest := startRequests(t, jdk)
	const amount = 8000 // ms
	p, truth := recordEvents(t, guest, "wall", 3, amount, "--slow="+handle, "--breakpoints=always", "--budget=50%")
	got := slowCalls(t, p)
	const most = 20
	if len(truth.Calls) < 2*most || len(got) != most {
		t.Fatalf("%d slow calls of %d\n%s", len(got), len(truth.Calls), strings.Join(p.Comments, "\n"))
	}
	if !slices.IsSortedFunc(got, func(a, b slowCall) int { return cmp.Compare(b.length, a.length) }) {
		t.Error("they are not in order")
	}
	tolerance := func(length time.Duration) time.Duration { return max(time.Millisecond, length/100) }
	found := map[int]bool{}
	var all, unknown time.Duration
	upper, mostUpper := 0, 1 // calls of which only an upper bound is known
	for _, c := range got {
		all, unknown = all+c.length, unknown+c.byCause["unknown"]
		best := -1
		for i, of := range truth.Calls {
			if (of.Start-c.start).Abs() < 20*time.Millisecond && !found[i] &&
				(best < 0 || (of.Start-c.start).Abs()+
					(of.Length-c.length).Abs() < (truth.Calls[best].Start-c.start).Abs()+
					(truth.Calls[best].Length-c.length).Abs()) {
				best = i
			}
		}
		if best < 0 {
			// The return of the one before was not seen, of which the profile says so.
			joined := slices.IndexFunc(truth.Calls, func(of events.Called) bool {
				return of.Start > c.start && (of.Start+of.Length-c.start-c.length).Abs() < 20*time.Millisecond
			})
			if upper++; joined < 0 || upper > mostUpper || !strings.Contains(strings.Join(p.Comments, "\n"), "upper bounds") {
				t.Errorf("no call began at %v and took %v", c.start, c.length)
				continue
			}
			found[joined] = true
			t.Logf("a call of %v is said to have taken %v at most", truth.Calls[joined].Length, c.length)
			continue
		}
		found[best] = true
		checkSlow(t, c, truth.Calls[best], tolerance(truth.Calls[best].Length))
	}
	const mostUnknown = 0.05 // it may hide as much of any cause
	if unknown > time.Duration(mostUnknown*float64(all)) {
		t.Errorf("of %v, the cause of %v is unknown", all, unknown)
	}
	if t.Failed() {
		t.Log(strings.Join(p.Comments, "\n"))
	}
	least := got[len(got)-1].length
	first := slices.MinFunc(truth.Calls, func(a, b events.Called) int { return cmp.Compare(a.Start, b.Start) }).Start
	for i, of := range truth.Calls {
		if of.Start < first+noticed { // its thread had just begun
			continue
		}
		if of.Length > least+tolerance(least) && !found[i] {
			t.Errorf("a call of %v, %v after the first one, is not among the slowest, of which the shortest took %v", of.Length,
				of.Start-first, least)
		}
	}
	checkMean(t, p, truth)
}

// noticed is how long it may take until a new thread has breakpoints, on a busy machine. Calls that
// it is in by then are not seen.
const noticed = time.Second

// checkSlow compares one call with the program's account of it.
func checkSlow(t *testing.T, got slowCall, want events.Called, tolerance time.Duration) {
	t.Helper()
	delayed := got.byCause["runnable"] + got.byCause["throttled"] + got.byCause["safepoint"]
	t.Logf("%v %s: %v; in truth %v: ran %v, slept %v, blocked %v, received %v, failed %v", got.length, got.end,
		got.byCause, want.Length, want.Ran, want.Sleep, want.Monitor, want.Socket, want.Failed)
	end := "returned"
	if want.Failed { // it ended no later than the pause before the next call
		end = "unwound"
		tolerance += 20 * time.Millisecond
	}
	if (got.length-want.Length).Abs() > tolerance+delayed/10 || got.end != end {
		t.Errorf("a call of %v that %s took %v in truth, failed: %v", got.length, got.end, want.Length, want.Failed)
	}
	allowed := want.Length/20 + tolerance
	if off := (got.byCause["running"] - want.Ran).Abs(); off > allowed {
		t.Errorf("it ran for %v, %v in truth", got.byCause["running"], want.Ran)
	}
	for cause, length := range map[string]time.Duration{"sleep": want.Sleep, "monitor": want.Monitor,
		"socket": want.Socket} {
		if off := (got.byCause[cause] + got.byCause[events.Also[cause]] - length).Abs(); off > allowed+delayed+
			got.byCause["unknown"] {
			t.Errorf("it waited for %v because of %s, %v in truth", got.byCause[cause]+got.byCause[events.Also[cause]],
				cause, length)
		}
	}
}

// A method that is called too often is not followed, and the error says what to do.
func TestSlowRefused(t *testing.T) {
	needs.Root(t, "sampling")
	jdk := needs.JDK(t)
	guest := startEvents(t, jdk, events.Locking)
	done := make(chan error, 1)
	go func() {
		_, err := guest.Run(1, 50_000_000)
		done <- err
	}()
	defer func() { <-done }()
	defer guest.Kill()
	optimized(t, jdk, guest.PID(), "guest.Locking.often")
	got := agent(t, "record", "-e", "wall", "--slow=guest.Locking.often", "--breakpoints=always", "-p",
		strconv.Itoa(guest.PID()), "-d", "5", "-o", filepath.Join(t.TempDir(), "slow.pb.gz"))
	if got.code == 0 || !strings.Contains(got.stderr, "guest.Locking.often is called too often to be followed") ||
		!strings.Contains(got.stderr, "choose a method that is called less often") {
		t.Errorf("it ended with %d:\n%s", got.code, got.stderr)
	}
}
