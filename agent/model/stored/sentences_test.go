package stored

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

func TestSummary(t *testing.T) {
	for _, test := range []struct {
		counts profile.Counts
		want   string
	}{
		{profile.Counts{}, "samples: 0, 0 lost, 0 truncated"},
		{profile.Counts{Folded: 141, Dropped: map[string]uint64{"ring_full": 3},
			Discarded: map[string]uint64{"malformed": 6},
			Truncated: map[string]uint64{"frame pointer": 50}, Unknown: 8},
			"samples: 141, 9 lost (malformed 6, ring_full 3), 50 truncated (frame pointer 50), 8 frames without a " +
				"name"},
		{profile.Counts{Folded: 7, Stale: 2, Dropped: map[string]uint64{"b": 1, "a": 2},
			Discarded: map[string]uint64{"a": 4}},
			"samples: 7, 7 lost (a 6, b 1), 0 truncated, 2 stale frames"},
	} {
		if got := summary(test.counts); got != test.want {
			t.Errorf("summary = %q, want %q", got, test.want)
		}
	}
}

var chain = profile.Contexts{
	Mode: profile.ContextChain, Walked: 50, Linked: 950, Ambiguous: 120, Fitted: 13, Unplaced: 4,
	Nodes: 346, Shared: 10, Methods: 122, ByDepth: [3]uint64{995, 992, 870}, BySite: [3]uint64{998, 995, 900},
}

func TestProcessContexts(t *testing.T) {
	checked := chain
	checked.Check = &profile.ContextCheck{Samples: 400, Right: [3]uint64{396, 388, 350}}
	for _, test := range []struct {
		contexts ProcessContexts
		want     string
	}{
		{ProcessContexts{"java", 4711, 0, chain},
			"contexts of java (pid 4711): chain, walked=50, linked=950, ambiguous=120, fitted=13, unplaced=4, " +
				"nodes=346, " +
				"shared=10, methods=122, by-depth=995/992/870, by-site=998/995/900"},
		{ProcessContexts{"java", 1, 3, checked},
			"contexts of java (pid 1) in window 3: chain, walked=50, linked=950, ambiguous=120, fitted=13, " +
				"unplaced=4, nodes=346, " +
				"shared=10, methods=122, by-depth=995/992/870, by-site=998/995/900, check=400/396/388/350"},
		{ProcessContexts{"java", 1, 0, profile.Contexts{Mode: profile.ContextPartial, Walked: 1, Linked: 2}},
			"contexts of java (pid 1): partial, walked=1, linked=2, ambiguous=0, fitted=0, unplaced=0"},
	} {
		if got := test.contexts.String(); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
	for comm, want := range map[string]string{
		"": "[unknown] (pid 1)", "a\x1b[2J\nb": `a\x1b[2J\nb (pid 1)`,
		strings.Repeat("x", 1<<20): strings.Repeat("x", MaxName-3) + "… (pid 1)",
	} {
		c := ProcessContexts{Comm: comm, PID: 1}
		if got := c.Process(); got != want {
			t.Errorf("%.100q is %.100q", comm, got)
		}
	}
}

func TestWindow(t *testing.T) {
	counts := profile.Counts{Folded: 990, Truncated: map[string]uint64{"frame pointer": 3}}
	w := Window{2, time.Date(2026, 11, 22, 10, 15, 30, 123_400_000, time.UTC), 10_002_300 * time.Microsecond,
		Account{Samples: counts}}
	if got, want := w.String(), "window 2: from 2026-11-22T10:15:30.123Z for 10.002s, samples: 990, 0 lost, 3 "+
		"truncated (frame pointer 3)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestTotal(t *testing.T) {
	for _, test := range []struct {
		total              Total
		scaled, incomplete bool
		want               string
	}{
		{Total{Sum: 7, Within: 1.2}, false, false, "java (pid 1): 7 ± 2 bytes"},
		{Total{Sum: 7}, false, false, "java (pid 1): 7 bytes, exact"},
		{Total{Sum: 7, Missed: 40 * time.Millisecond, Lost: 0.0005, Time: time.Second, Observed: time.Second}, false,
			false, "java (pid 1): 7 bytes, exact"},
		{Total{Sum: 7, Within: Bound(math.Inf(1)), Time: 10 * time.Second, Observed: 9990 * time.Millisecond}, true,
			true, "java (pid 1): observed all but 10ms of 10s; values are scaled to all of it: 7 bytes; the error is " +
				"unknown"},
		{Total{Sum: 7, Missed: 440 * time.Millisecond}, false, true,
			"java (pid 1): nothing was observed in its first 400ms: 7 bytes since then"},
		{Total{Sum: 7, Within: 2, Missed: time.Second}, false, true,
			"java (pid 1): nothing was observed in its first 1s: 7 ± 2 bytes since then"},
		{Total{Sum: 7, Lost: 0.031}, true, true,
			"java (pid 1): up to 3.1% of the events were lost; values are scaled to all of them: 7 ± 0 bytes"},
		{Total{Sum: 7, Time: 20 * time.Second, Observed: 4 * time.Second, Slices: 4}, true, true,
			"java (pid 1): observed 20.0% of the time, 4s of 20s, in 4 slices; values are scaled to all of it: 7 ± 0 " +
				"bytes"},
		{Total{Sum: 7, Within: Bound(math.Inf(1)), Time: 10 * time.Second, Observed: time.Second, Slices: 1}, true,
			true,
			"java (pid 1): observed 10.0% of the time, 1s of 10s, in 1 slice; values are scaled to all of it: 7 " +
				"bytes; the error is unknown"},
	} {
		test.total.Comm, test.total.PID = "java", 1
		if got := totalSentences([]Total{test.total}, "bytes")[0]; got != test.want ||
			test.total.Scaled() != test.scaled || test.total.Incomplete() != test.incomplete {
			t.Errorf("%q, scaled %v, incomplete %v, want %q", got, test.total.Scaled(), test.total.Incomplete(),
				test.want)
		}
	}
}

// Times are in seconds, or in a smaller unit if they are short.
func TestTotalOfTime(t *testing.T) {
	for want, total := range map[string]Total{
		"java (pid 1): 120.03 s, exact":              {Sum: 120029153712},
		"java (pid 1): 1.02 ± 0.16 s":                {Sum: 1017747887, Within: 159707394},
		"java (pid 1): 12.28 ± 0.01 ms":              {Sum: 12279000, Within: 1},
		"java (pid 1): 0.70 ± 0.00 µs":               {Sum: 700, Lost: 0.5},
		"java (pid 1): 0.00 µs since then":           {Missed: time.Second},
		"java (pid 1): 3.00 s; the error is unknown": {Sum: 3e9, Within: Bound(math.Inf(1))},
	} {
		total.Comm, total.PID = "java", 1
		got := totalSentences([]Total{total}, UnitTime)[0]
		if i := strings.LastIndex(got, ": "); !strings.HasSuffix(want, got[i:]) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Many processes of one name have one sentence.
func TestManyTotals(t *testing.T) {
	totals := []Total{{Comm: "java", PID: 1, Sum: 9, Within: 2}}
	for pid := range int64(300) {
		totals = append(totals, Total{Comm: "sh", PID: pid, Sum: 2, Within: 1, Time: 100 * time.Millisecond,
			Observed: 100 * time.Millisecond, Missed: time.Duration(pid) * time.Millisecond})
	}
	got := totalSentences(totals, "ns")
	// 100 whole ones add up as their squares do, the others as they are.
	want := []string{"java (pid 1): 9 ± 2 ns",
		"sh (300 processes): nothing was observed in their first 300ms: 600 ± 201 ns since then"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestRounding(t *testing.T) {
	for _, test := range []struct {
		rounding Rounding
		want     string
	}{
		{Rounding{"java", 1, "hotspot", profile.Inferred, 2},
			"java (pid 1): 2 edges with less than one call each omitted (engine hotspot, inferred); their calls " +
				"count for other edges"},
		{Rounding{Comm: "java", PID: 1}, "java (pid 1): the sums of the values are too large for the format and " +
			"omitted"},
	} {
		if got := test.rounding.String(); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}
