package main

import (
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/events"
)

func TestJudgeWaits(t *testing.T) {
	truth := events.Truth{
		Waits: []events.Waited{
			{Method: "W.hot", Class: "Hot", Times: 1000, LongTimes: 200, Sum: 130e6, LongSum: 100e6},
			{Method: "W.rare", Class: "Rare", Times: 1000, LongTimes: 2, Sum: 1e6, LongSum: 1e6},
		},
		Idle: []events.Waited{{Method: "W.idle", Class: "Signal", Times: 10, LongTimes: 10, Sum: 50e6}},
	}
	wait := func(class, kind, method string, contentions, delay float64) events.Row {
		return row(events.Labels{Class: class, Kind: kind}, 1, []float64{contentions, delay}, "Unsafe.park", method)
	}
	idle := wait("Signal", kindWait, "W.idle", 0, 50e6)
	for _, j := range []judgement{
		{"right", []events.Row{wait("Hot", "block", "W.hot", 150, 50e6), wait("Hot", "spin", "W.hot", 100, 49e6), idle},
			nil},
		{"too short", []events.Row{wait("Hot", "block", "W.hot", 250, 94e6), idle}, []string{"delay"}},
		{"too few", []events.Row{wait("Hot", "block", "W.hot", 180, 99e6), idle}, []string{"waits, at least"}},
		{"another class", []events.Row{wait("Hot", "block", "W.hot", 250, 97e6), wait("Cold", "block", "W.hot", 1, 3e6),
			idle},
			[]string{"delay of the right class"}},
		{"idle as contention", []events.Row{wait("Hot", "block", "W.hot", 250, 99e6),
			wait("Signal", "park", "W.idle", 1, 5e6)},
			[]string{"delay without contention"}},
	} {
		j.check(t, judgeWaits(truth, j.rows, 0))
	}
	// Of 200 long waits the records took a tenth of a millisecond each, and 80 are left.
	rows := []events.Row{wait("Hot", "block", "W.hot", 250, 80e6), idle}
	judgement{"with slow records", rows, nil}.check(t, judgeWaits(truth, rows, 100*time.Microsecond))
	judgement{"with fast records", rows, []string{"delay"}}.check(t, judgeWaits(truth, rows, 0))
}
