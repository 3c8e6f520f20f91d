package main

import (
	"testing"

	"github.com/vmprof-agent/vmprof-agent/tests/events"
)

func TestJudgePauses(t *testing.T) {
	const mark, named = "ShenandoahInitMark", "Shenandoah Init Marking"
	logged := []events.Safepoint{{Operation: "A", Total: 50e6}, {Operation: "A", Total: 30e6},
		{Operation: mark, Total: 20e6}}
	pause := func(operation string, times, stopped float64) events.Row {
		return row(events.Labels{Kind: operation}, 1, []float64{times, stopped})
	}
	for _, j := range []judgement{
		{"right", []events.Row{pause("A", 2, 80.5e6), pause(named, 1, 20e6)}, nil},
		{"too short", []events.Row{pause("A", 2, 75e6), pause(named, 1, 20e6)}, []string{"stopped", "stopped for"}},
		{"one missing", []events.Row{pause("A", 2, 100e6)}, []string{"pauses", "operations, overlap", "stopped for"}},
		{"another operation", []events.Row{pause("A", 1, 80e6), pause(named, 2, 20e6)},
			[]string{"operations, overlap"}},
	} {
		j.check(t, judgePauses(logged, j.rows))
	}
}
