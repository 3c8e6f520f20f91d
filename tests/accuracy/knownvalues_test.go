package main

import (
	"testing"

	"github.com/vmprof-agent/vmprof-agent/tests/events"
)

func TestJudgeValues(t *testing.T) {
	truth := events.Weights{"leaf": 160, "area": 40, "once": 1} // once is too rare to be judged by samples
	value := func(name string, n int64, times float64) []events.Row {
		return []events.Row{row(events.Labels{Value: name}, n, []float64{times}, "main")}
	}
	once := value("once", 1, 1)[0]
	right := append(value("leaf", 160, 160), value("area", 40, 40)[0], once)
	for _, test := range []struct {
		judgement
		every int
	}{
		{judgement{"all", right, nil}, 1},
		{judgement{"one missing", append(value("leaf", 159, 159), value("area", 40, 40)[0], once), []string{"executions", "executions with a value"}}, 1},
		{judgement{"another value", append(value("leaf", 159, 159), value("area", 41, 41)[0], once), []string{"executions with a value"}}, 1},
		{judgement{"every tenth", append(value("leaf", 15, 150), value("area", 5, 50)...), nil}, 10},
		{judgement{"skewed", append(value("leaf", 100, 100), value("area", 100, 100)...), []string{"share of a value"}}, 10},
		{judgement{"a rare one", append(value("leaf", 160, 160), value("area", 40, 40)[0], value("once", 10, 10)[0]), nil}, 10},
		{judgement{"too many", append(value("leaf", 20, 200), value("area", 5, 50)...), []string{"executions"}}, 10},
	} {
		test.check(t, judgeValues(truth, test.rows, test.every))
	}
}
