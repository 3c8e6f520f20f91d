package main

import (
	"math"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/events"
	"github.com/vmprof-agent/vmprof-agent/tests/jfr"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/stacks"
)

func waitRow(method, cause string, count int64, millis float64) events.Row {
	return events.Row{Stack: stacks.Stack{Frames: []stacks.Frame{{Function: method}}, Count: count},
		Labels: events.Labels{Cause: cause}, Values: []float64{millis * 1e6}}
}

func TestJudgeWay(t *testing.T) {
	const method = "guest.Away.monitor"
	away := events.OffCPU{Method: method, Cause: "monitor", Times: 100, Sum: time.Second}
	wall := []events.Row{waitRow(method, "monitor", 100, 950), waitRow(method, "running", 9, 5000)}
	for name, tt := range map[string]struct {
		rows []events.Row
		want bool
	}{
		"right": {[]events.Row{waitRow(method, "monitor", 900, 900), waitRow(method, "runnable", 50, 80),
			waitRow("guest.Away.lock", "lock", 1, 5000)}, true},
		"too short": {[]events.Row{waitRow(method, "monitor", 10_000, 700)}, false},
		"of another cause": {[]events.Row{waitRow(method, "lock", 900, 500), waitRow(method, "monitor", 900, 500)},
			false},
		"few that are long": {[]events.Row{waitRow(method, "monitor", 10, 700)}, true},
	} {
		if got := judgeWay(away, tt.rows, wall); got.ok() != tt.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestBesideWaits(t *testing.T) {
	flown := []jfr.Event{
		{Duration: time.Second, Stack: []jfr.Frame{{Method: "java.lang.Thread.sleep0"}, {Method: "guest.Away.sleep"}}},
		{Duration: time.Minute, Stack: []jfr.Frame{{Method: "guest.Away.park"}}}, {Duration: time.Hour},
	}
	if got := flownTime(flown, "guest.Away.sleep"); got != 1e9 {
		t.Errorf("JFR has %v", got)
	}
	if got := flownTime(flown, "guest.Away.pipe"); !math.IsNaN(got) {
		t.Errorf("JFR has %v of what it does not record", got)
	}
	threads := []profiler.ThreadTime{{TID: 1, Wait: 2 * time.Second, Delay: time.Second}, {TID: 2, Wait: time.Minute}}
	rows := []events.Row{waitRow("guest.Away.sleep", "sleep", 1, 1500), waitRow("guest.Crew.await", "park", 1, 500),
		waitRow("guest.Away.park", "park", 1, 1000)}
	rows[0].TID, rows[1].TID, rows[2].TID = 1, 1, 3
	for method, want := range map[string]float64{"guest.Away.sleep": 1, "guest.Away.park": math.NaN()} {
		if got := schedShare(threads, rows, method); got != want && !(math.IsNaN(got) && math.IsNaN(want)) {
			t.Errorf("perf has %v of %s, want %v", got, method, want)
		}
	}
	const collapsed = "java/lang/Thread.run;guest/Away.park;futex_wait 7\njava/lang/Thread.run;guest/Away.parked " +
		"100\nguest/Away.park 3\n"
	if got := collapsedTime(collapsed, "guest.Away.park"); got != 10*float64(asyncPeriod) {
		t.Errorf("async-profiler has %v", got)
	}
}
