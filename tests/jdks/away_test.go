package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/events"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
)

// awayRow is a row of a wait in a method that ends in a root.
func awayRow(method, cause, root string, count int64, millis float64) events.Row {
	return events.Row{Stack: stackOf(count, method, root), Labels: events.Labels{Cause: cause},
		Values: []float64{millis * 1e6, 2 * float64(count)}}
}

func TestJudgeWays(t *testing.T) {
	const method = "guest.Away.monitor"
	away := events.OffCPU{Method: method, Cause: "monitor", Times: 100, Sum: time.Second}
	row := func(cause string, count int64, millis float64) events.Row {
		return awayRow(method, cause, entry, count, millis)
	}
	long := []events.Row{row("monitor", 100, 1000), row("running", 9, 5000)}
	for name, tt := range map[string]struct {
		off, wall, cut     []events.Row
		time, cause, whole state
	}{
		"true": {[]events.Row{row("monitor", 900, 900), row("runnable", 50, 60),
			awayRow("guest.Away.lock", "lock", entry, 1, 5000)}, long, nil, right, right, right},
		"too short":         {[]events.Row{row("monitor", 10_000, 700)}, long, nil, wrong, right, right},
		"few that are long": {[]events.Row{row("monitor", 10, 700)}, long, nil, right, right, right},
		"wall time is too long": {[]events.Row{row("monitor", 10_000, 1000)}, []events.Row{row("monitor", 100, 1200)},
			nil, wrong, right, right},
		"in the VM": {[]events.Row{row("monitor", 900, 900), row("vm call", 100, 100)}, long, nil, right,
			silent, right},
		"of another cause": {[]events.Row{row("monitor", 900, 900), row("lock", 100, 100)}, long, nil, right,
			wrong, right},
		"mostly delays": {[]events.Row{row("runnable", 900, 985), row("monitor", 5, 10), row("vm call", 5, 5)}, long,
			nil, right, right, right},
		"long and exact": {[]events.Row{{Stack: stackOf(10, method, entry), Labels: events.Labels{Cause: "monitor"},
			Values: []float64{7e8, 10}}}, long, nil, wrong, right, right},
		"cut": {[]events.Row{row("monitor", 900, 980),
			awayRow(method, "monitor", "[truncated: unknown code]", 10, 20)}, long, nil, right, right, wrong},
		"no root": {[]events.Row{row("monitor", 900, 980), awayRow(method, "monitor", "guest.Crew.run", 10, 20)},
			long, nil, right, right, wrong},
		"cut before the method": {[]events.Row{{Stack: stackOf(900, method, entry),
			Labels: events.Labels{Cause: "monitor"}, Values: []float64{9.8e8, 900}}}, long,
			[]events.Row{awayRow("libc", "futex", "[truncated: unknown code]", 10, 20)}, right, right, wrong},
		"nothing": {nil, nil, nil, wrong, right, wrong},
	} {
		verdicts := judgeWays([]way{wayOf(away, tt.off, tt.wall, tt.cut, entry)})
		expect(t, name, verdicts, offCPU, tt.time)
		expect(t, name, verdicts, causes, tt.cause)
		expect(t, name, verdicts, wholeWait, tt.whole)
	}
	bad := wayOf(away, []events.Row{row("monitor", 900, 900), row("lock", 100, 100)}, long, nil, entry)
	if v := judgeWays([]way{bad})[1]; !strings.Contains(v.found, "monitor 90.0 % right (lock 100ms)") {
		t.Errorf("%q", v.found)
	}
	late := []events.Row{{Stack: stackOf(10, "futex_wait"), Values: []float64{2e8, 10}}}
	unseen := wayOf(away, []events.Row{{Stack: stackOf(10, method, entry), Labels: events.Labels{Cause: "monitor"},
		Values: []float64{8e8, 10}}}, long, late, entry)
	for said, want := range map[bool]state{false: wrong, true: silent} {
		unseen.Said = said
		verdicts := judgeWays([]way{unseen})
		expect(t, fmt.Sprint("without callers at first, said: ", said), verdicts, offCPU, want)
		expect(t, fmt.Sprint("without callers at first, said: ", said), verdicts, wholeWait, want)
	}
	expect(t, "no ways", judgeWays(nil), offCPU, wrong)
	busy := events.OffCPU{Method: "guest.Away.burn", Cause: "runnable", Sum: time.Second}
	slept := wayOf(busy, []events.Row{awayRow(busy.Method, "runnable", entry, 900, 900),
		awayRow(busy.Method, "monitor", entry, 90, 100)}, nil, nil, entry)
	if slept.causeOK() || slept.Right != 0.9 {
		t.Errorf("%+v", slept)
	}
}

func TestJudgeCarried(t *testing.T) {
	away := func(method, cause string) events.OffCPU {
		return events.OffCPU{Method: "guest.Carried." + method, Cause: cause, Sum: time.Second}
	}
	pinned := func(cause string, millis float64) way {
		rows := []events.Row{awayRow("guest.Carried.owning", cause, entry, 10_000, millis)}
		return wayOf(away("owning", "sleep"), rows, rows, nil, entry)
	}
	gone := func(millis float64) way {
		rows := []events.Row{awayRow("guest.Carried.park", "park", entry, 10_000, millis)}
		return wayOf(away("park", unmounted), rows, nil, nil, entry)
	}
	idle := func(cause string) way {
		return idleHelpers([]events.Row{
			{Stack: stackOf(9, "java.util.concurrent.ForkJoinPool.runWorker", carrier),
				Labels: events.Labels{Cause: cause}, Values: []float64{1e9, 9}},
			{Stack: stackOf(9, "java.lang.VirtualThread.run", "java.util.concurrent.ForkJoinPool.runWorker", carrier),
				Labels: events.Labels{Cause: "sleep"}, Values: []float64{1e9, 9}},
		})[0]
	}
	for name, tt := range map[string]struct {
		ways []way
		want state
	}{
		"true":              {[]way{pinned("sleep", 1000), gone(10)}, right},
		"of another cause":  {[]way{pinned("park", 1000), gone(0)}, wrong},
		"missing":           {[]way{pinned("sleep", 100), gone(0)}, wrong},
		"idle":              {[]way{idle("idle")}, right},
		"idle for a lock":   {[]way{idle("park")}, wrong},
		"without a carrier": {[]way{pinned("sleep", 1000), gone(900)}, wrong},
	} {
		expect(t, name, []verdict{judgeCarried(tt.ways)}, carried, tt.want)
	}
}

func TestWaitTables(t *testing.T) {
	of := func(release, setup string, ways ...way) result {
		r := result{cell: cell{jdk: jvm.JDK{Release: release, Version: len(release)}}, ways: ways}
		r.name = setup
		return r
	}
	sleep := way{Method: "guest.Away.sleep", Cause: "sleep", Truth: 100, OffCPU: 101, Wall: 98, Right: 1, Whole: 0.999}
	slow := way{Method: "guest.Away.disk", Cause: "disk", Truth: 100, OffCPU: 103, Wall: 100, Right: 0.98, Whole: 1}
	gone := way{Method: "guest.Carried.sleep", Cause: unmounted, Truth: 100, OffCPU: 10, Wrong: 1}
	absent, failed := of("17", "Shenandoah"), of("21", "Serial")
	absent.absent = "Unrecognized"
	untried := of("21", "Epsilon")
	untried.untried = true
	results := []result{of("17", plain, sleep, slow), of("17", "Serial", sleep), of("21", plain, sleep, gone), absent,
		failed, untried}
	table := waitTable(results)
	want := [][]string{{plain, "+3.0 / 98.0 / 99.9", "-2.0 / 100.0 / 99.9"}, {"Serial", "-2.0 / 100.0 / 99.9", "error"}}
	check(t, table.Rows, want)
	slow.OffCPU = 90
	results[1].ways = append(results[1].ways, slow)
	check(t, wayTable(results).Rows, [][]string{
		{sleep.Method, "sleep", "-2.0 / 100.0 / 99.9", "-2.0 / 100.0 / 99.9"},
		{slow.Method, "disk", "-10.0 / 98.0 / 100.0", ""},
		{gone.Method, unmounted, "", "1.0 recorded"},
	})
	if all := tables(results, false); len(all) != 6 {
		t.Errorf("%d tables", len(all))
	}
	if some := tables(results, true); len(some) != 3 || some[0].Marker != "waits" {
		t.Errorf("tables of waits: %v", some)
	}
}

func check(t *testing.T, got, want [][]string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%q, want %q", got, want)
	}
	for i := range want {
		if strings.Join(got[i], "|") != strings.Join(want[i], "|") {
			t.Errorf("%q, want %q", got[i], want[i])
		}
	}
}
