package main

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/events"
	"github.com/vmprof-agent/vmprof-agent/tests/stacks"
)

// stackOf is a stack of Java methods, innermost first.
func stackOf(count int64, methods ...string) stacks.Stack {
	s := stacks.Stack{Count: count, Thread: "worker-0"}
	for _, method := range methods {
		f := stacks.Frame{Function: method, Mapping: "[jit]"}
		if strings.HasPrefix(method, "[") {
			f.Mapping = ""
		}
		s.Frames = append(s.Frames, f)
	}
	return s
}

// expect fails unless the verdict on a feature is that state.
func expect(t *testing.T, what string, verdicts []verdict, feature string, want state) {
	t.Helper()
	for _, v := range verdicts {
		if v.feature == feature {
			if v.state != want {
				t.Errorf("%s: %s is %q, want state %d", what, feature, v, want)
			}
			return
		}
	}
	t.Errorf("%s: no verdict on %s", what, feature)
}

func TestJudgeWork(t *testing.T) {
	const descend, heavy, light = "guest.Working.descend", "guest.Working.heavy", "guest.Working.light"
	truth := events.Truth{
		Worked: []events.Worked{{Method: heavy, CPU: 600 * time.Millisecond},
			{Method: light, CPU: 400 * time.Millisecond}},
		Depths: map[string]int{descend: 2},
	}
	below := func(leaf string, count int64, further ...string) stacks.Stack {
		return stackOf(count, append(append([]string{leaf}, further...), "guest.Working.work", entry)...)
	}
	good := judgeWork(truth, []stacks.Stack{below(heavy, 600, descend, descend), below(light, 400, descend, descend)})
	expect(t, "true", good, shares, right)
	expect(t, "true", good, whole, right)
	expect(t, "true", good, inlined, right)

	bad := judgeWork(truth, []stacks.Stack{below(heavy, 400, descend, descend), below(light, 600, descend)})
	expect(t, "other shares", bad, shares, wrong)
	expect(t, "a call is missing", bad, inlined, wrong)

	cut := judgeWork(truth, []stacks.Stack{below(heavy, 600, descend, descend),
		stackOf(400, light, "[truncated: unknown code]")})
	expect(t, "marked", cut, whole, silent)
	cut = judgeWork(truth, []stacks.Stack{below(heavy, 600, descend, descend),
		stackOf(400, light, descend, descend, "guest.Working.work")})
	expect(t, "cut, not marked", cut, whole, wrong)
	expect(t, "no samples", judgeWork(truth, nil), shares, wrong)
}

func TestJudgeAllocations(t *testing.T) {
	truth := events.Truth{Allocations: []events.Allocated{{Class: "byte[]", Bytes: 3e6},
		{Class: "guest.A", Bytes: 1e6}}}
	row := func(class string, bytes float64) events.Row {
		return events.Row{Labels: events.Labels{Class: class}, Values: []float64{1, bytes}}
	}
	good := judgeAllocations(truth, []events.Row{row("byte[]", 3.1e6), row("guest.A", 1e6)}, 0, nil)
	expect(t, "true", good, allocated, right)
	expect(t, "true", good, classes, right)
	bad := judgeAllocations(truth, []events.Row{row("byte[]", 1e6), row("guest.A", 1e6)}, 0, nil)
	expect(t, "half of it", bad, allocated, wrong)
	unsure := judgeAllocations(truth, []events.Row{row("byte[]", 1e6), row("guest.A", 1e6)}, 3e6, nil)
	expect(t, "half of it, and unsure", unsure, allocated, silent)
	near := judgeAllocations(truth, []events.Row{row("byte[]", 1.8e6), row("guest.A", 0.9e6)}, 1.9e6, nil)
	expect(t, "two thirds of it, as the interval says", near, allocated, right)
	endless := judgeAllocations(truth, []events.Row{row("byte[]", 1e6), row("guest.A", 1e6)}, math.Inf(1), nil)
	expect(t, "nobody knows how far off", endless, allocated, silent)
	if want := "2 ± unknown MB, truth 4"; endless[0].found != want {
		t.Errorf("%q, want %q", endless[0].found, want)
	}
	expect(t, "other shares", bad, classes, wrong)
	expect(t, "another class", judgeAllocations(truth, []events.Row{row("byte[]", 3e6), row("guest.B", 1e6)}, 0, nil),
		classes, wrong)
	expect(t, "no classes", judgeAllocations(truth, []events.Row{row("", 4e6)}, 0, nil), classes, silent)
	expect(t, "nothing", judgeAllocations(truth, nil, 0, nil), allocated, wrong)
	expect(t, "nothing, and said", judgeAllocations(truth, nil, 0,
		[]string{"allocations are not recorded: no symbols"}), allocated, silent)
}

func TestJudgeWaits(t *testing.T) {
	const hot, lock, idle = "guest.Waiting.hot", "guest.Waiting.lock", "guest.Waiting.condition"
	const monitor, sync = "guest.Waiting$Hot", "java.util.concurrent.locks.ReentrantLock$NonfairSync"
	truth := events.Truth{
		Waits: []events.Waited{{Method: hot, Class: monitor, LongSum: time.Second},
			{Method: lock, Class: sync, LongSum: time.Second}},
		Idle: []events.Waited{{Method: idle, Sum: time.Second}},
	}
	row := func(method, class, kind string, delay float64) events.Row {
		return events.Row{Stack: stackOf(1, method), Labels: events.Labels{Class: class, Kind: kind},
			Values: []float64{1, delay}}
	}
	parked := row(lock, sync, "park", 1e9)
	good := judgeWaits(truth, []events.Row{row(hot, monitor, "block", 1e9), parked, row(idle, sync, "wait", 1e9)}, 0, 0,
		nil)
	for _, feature := range []string{monitors, locks, lockTypes, apart} {
		expect(t, "true", good, feature, right)
	}
	bad := judgeWaits(truth, []events.Row{row(hot, sync, "block", 1e8), parked, row(idle, sync, "park", 1e9)}, 0, 0,
		nil)
	expect(t, "a tenth", bad, monitors, wrong)
	expect(t, "another class", bad, lockTypes, wrong)
	expect(t, "counted as contention", bad, apart, wrong)
	expect(t, "nothing", judgeWaits(truth, []events.Row{parked}, 0, 0, nil), monitors, wrong)
	said := judgeWaits(truth, []events.Row{parked}, 0, 0,
		[]string{"waits for monitors are not recorded: this build is unknown"})
	expect(t, "nothing, and said", said, monitors, silent)
	expect(t, "nothing, and said", said, locks, right)
	said = judgeWaits(truth, []events.Row{row(hot, monitor, "block", 1e9)}, 0, 0,
		[]string{"java (pid 1): 7 waits count as waits for work, because " + unclear})
	expect(t, "nobody knows what for", said, locks, silent)
	unnamed := []events.Row{row(hot, "", "block", 1e9)}
	expect(t, "without a class", judgeWaits(truth, unnamed, 0, 0, nil), lockTypes, wrong)
	expect(t, "without a class, and said", judgeWaits(truth, unnamed, 0, 0, []string{noObjects + " (no symbols)"}),
		lockTypes, silent)
	many := row(hot, monitor, "enter", 5e8)
	many.Count = 10_000
	expect(t, "half of it", judgeWaits(truth, []events.Row{many, parked}, 0, 0, nil), monitors, wrong)
	expect(t, "half of it, and records took the other half", judgeWaits(truth, []events.Row{many, parked}, 0,
		50*time.Microsecond, nil), monitors, right)
}
