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
	// Ten records of leaf are lost. What is there stands for them, so that the sum is right.
	lossy := append(value("leaf", 150, 158), value("area", 40, 42)[0], once)
	for _, test := range []struct {
		judgement
		every int
		lost  uint64
	}{
		{judgement{"all", right, nil}, 1, 0},
		{judgement{"one missing", append(value("leaf", 159, 159), value("area", 40, 40)[0], once),
			[]string{"executions", "executions with a value", "records, with lost ones"}}, 1, 0},
		{judgement{"another value", append(value("leaf", 159, 159), value("area", 41, 41)[0], once),
			[]string{"executions with a value", "records with a wrong value"}}, 1, 0},
		{judgement{"lost", lossy, []string{"lost records"}}, 1, 10},
		{judgement{"lost, not counted", lossy, []string{"executions with a value", "records, with lost ones"}}, 1, 0},
		{judgement{"lost, another value", append(value("leaf", 149, 157), value("area", 41, 43)[0], once),
			[]string{"lost records", "records with a wrong value"}}, 1, 10},
		{judgement{"lost, off by more", append(value("leaf", 150, 140), value("area", 40, 60)[0], once),
			[]string{"executions with a value", "lost records"}}, 1, 10},
		{judgement{"every tenth", append(value("leaf", 15, 150), value("area", 5, 50)...), nil}, 10, 0},
		{judgement{"skewed", append(value("leaf", 100, 100), value("area", 100, 100)...), []string{"share of a value"}},
			10, 0},
		{judgement{"a rare one", append(value("leaf", 160, 160), value("area", 40, 40)[0], value("once", 10, 10)[0]),
			nil}, 10, 0},
		{judgement{"too many", append(value("leaf", 20, 200), value("area", 5, 50)...), []string{"executions"}}, 10, 0},
	} {
		test.check(t, judgeValues(truth, test.rows, test.every, test.lost))
	}
}
