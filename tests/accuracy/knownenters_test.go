package main

import (
	"testing"

	"github.com/vmprof-agent/vmprof-agent/tests/events"
)

func TestJudgeEnters(t *testing.T) {
	truth := events.Truth{Acquired: []events.Acquired{
		{Method: "L.a", Class: "A", Times: 700}, {Method: "L.either", Class: "A", Times: 100},
		{Method: "L.either", Class: "B", Times: 200},
	}}
	enter := func(class, method string, times float64) events.Row {
		return row(events.Labels{Class: class, Kind: kindEnter}, 1, []float64{times}, method, "L.run")
	}
	contended := row(events.Labels{Class: "B", Kind: "block"}, 1, []float64{1000}, "L.either") // not judged
	for _, j := range []judgement{
		{"right", []events.Row{enter("A", "L.a", 71), enter("A", "L.either", 10), enter("B", "L.either", 19),
			contended}, nil},
		{"another class", []events.Row{enter("A", "L.a", 70), enter("A", "L.either", 2), enter("B", "L.either", 28)},
			[]string{"share of a class"}},
		{"another method", []events.Row{enter("A", "L.a", 60), enter("A", "L.either", 20), enter("B", "L.either", 20)},
			[]string{"share of a method"}},
		{"nothing", nil, []string{"share of a class", "share of a method"}},
	} {
		j.check(t, judgeEnters(truth, j.rows))
	}
}
