package events_test

import (
	"bytes"
	"io"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/events"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink/sinktest"
)

// coverageLine matches what is said of a process that was not observed all the time, or in all
// events.
var coverageLine = regexp.MustCompile("scaled to all|nothing was observed")

// A profile says which processes were observed part of the time, over all its windows, and views
// take it into intervals.
func TestPartlyObserved(t *testing.T) {
	observed := func(of time.Duration, slices int, within float64) *profile.Profile {
		p := sinktest.Only(profile.Allocations) // 10 MiB of 151 events
		p.Processes[1].Events[0].Coverage = &profile.Coverage{Time: 10 * time.Second, Observed: of, Slices: slices,
			Chosen: within}
		return p
	}
	lossy := observed(10*time.Second, 0, 1<<20)
	lossy.Processes[1].Events[0].Coverage.Lost = 0.03
	late := observed(10*time.Second, 0, 1<<20)
	late.Processes[1].Events[0].Coverage.Missed = 810 * time.Millisecond
	lateExact := observed(10*time.Second, 0, 0)
	lateExact.Processes[1].Events[0].Coverage.Missed = 300 * time.Millisecond
	for _, c := range []struct {
		name       string
		window     *profile.Profile
		line, view string
		missed     time.Duration
	}{
		{"all the time", observed(10*time.Second, 0, 1<<20), "", "10.5MB (±10.0%)", 0},
		{"each one", observed(10*time.Second, 0, 0), "", "10.5MB (exact)", 0},
		{"a moment is missing", observed(9990*time.Millisecond, 0, math.Inf(1)),
			"java (pid 1234): observed all but 10ms of 10s; values are scaled to all of it: 10485760 bytes; the error " +
				"is unknown", "10.5MB (the error is unknown)", 0},
		{"some lost", lossy, "java (pid 1234): up to 3.0% of the events were lost; values are scaled to all of them: " +
			"10485760 ± 1048576 bytes", "(±10.0%)", 0},
		{"its beginning is missing", late,
			"java (pid 1234): nothing was observed in its first 800ms: 10485760 ± 1048576 bytes since then",
			"nothing was observed in its first 800ms",
			810 * time.Millisecond},
		{"each one, but its beginning", lateExact,
			"java (pid 1234): nothing was observed in its first 300ms: 10485760 bytes since then",
			"10.5MB (without up to 300ms before observation began)", 300 * time.Millisecond},
		{"part", observed(2*time.Second, 4, 4<<20),
			"java (pid 1234): observed 20.0% of the time, 2s of 10s, in 4 slices; values are scaled to all of it: " +
				"10485760 ± 4194304 bytes", "(±40.0%)", 0},
		{"one slice", observed(time.Second, 1, math.Inf(1)),
			"java (pid 1234): observed 10.0% of the time, 1s of 10s, in 1 slice; values are scaled to all of it: " +
				"10485760 bytes; the error is unknown",
			"10.5MB (the error is unknown)", 0},
	} {
		p, err := sink.Pprof(c.window, sink.ContentOf(c.window))
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		all := strings.Join(p.Comments, "\n")
		if !strings.Contains(all, c.line) || (c.line == "") == coverageLine.MatchString(all) {
			t.Errorf("%s: comments\n%s\nwant %s", c.name, all, c.line)
		}
		if total, err := events.TotalOf(p, profile.Allocations); err != nil || total.Missed != c.missed {
			t.Errorf("%s: missed %v, want %v (%v)", c.name, total.Missed, c.missed, err)
		}
		var out bytes.Buffer
		if err := events.Allocations(&out, p, nil); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(strings.Join(strings.Fields(out.String()), " "), c.view) {
			t.Errorf("%s: want %q in\n%s", c.name, c.view, out.String())
		}
		if c.line == "" != !coverageLine.MatchString(strings.Join(strings.Fields(out.String()), " ")) {
			t.Errorf("%s: the view says\n%s", c.name, out.String())
		}
	}
}

// A total whose interval is unknown is read back as such.
func TestUnknownInterval(t *testing.T) {
	window := sinktest.Only(profile.Allocations)
	window.Processes[1].Events[0].Coverage = &profile.Coverage{Time: 10 * time.Second, Observed: time.Second, Slices: 1,
		Chosen: math.Inf(1)}
	p := sinktest.Reparse(t, sinktest.MustPprof(t, window))
	total, err := events.TotalOf(p, profile.Allocations)
	if err != nil || !math.IsInf(total.Within, 1) {
		t.Errorf("± %v, %v; the comments are\n%s", total.Within, err, strings.Join(p.Comments, "\n"))
	}
	for _, write := range []func(io.Writer, *pprof.Profile) error{
		func(w io.Writer, p *pprof.Profile) error { return events.Allocations(w, p, nil) },
		func(w io.Writer, p *pprof.Profile) error { return report.Footer(w, p, 0) },
	} {
		var out bytes.Buffer
		if err := write(&out, p); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(out.String(), "Inf") || !strings.Contains(strings.Join(strings.Fields(out.String()), " "),
			"the error is unknown") {
			t.Errorf("a number that nobody can read, or none:\n%s", out.String())
		}
	}
}
