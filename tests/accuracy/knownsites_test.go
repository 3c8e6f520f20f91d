package main

import (
	"testing"

	"github.com/vmprof-agent/vmprof-agent/tests/events"
)

func TestJudgeSites(t *testing.T) {
	truth := events.Truth{Allocations: []events.Allocated{
		{Method: "A.small", Class: "A", Objects: 1000, Bytes: 16000},
		{Method: "A.large", Class: "byte[]", Objects: 10, Bytes: 16000},
	}}
	exact := func(class string, objects, bytes float64) events.Row {
		return events.Row{Labels: events.Labels{Class: class, Kind: events.Exact}, Values: []float64{objects, bytes}}
	}
	sampled := func(class, method string, objects, bytes float64) events.Row {
		return row(events.Labels{Class: class}, 500, []float64{objects, bytes}, method, "A.run")
	}
	other := sampled("byte[]", "A.large", 10, 1e9)
	other.Thread = "main"
	counted := []events.Row{exact("A", 1000, 16000), exact("byte[]", 11, 16100), other}
	for _, j := range []judgement{
		{"right", append([]events.Row{sampled("A", "A.small", 990, 15900), sampled("byte[]", "A.large", 10, 16100)},
			counted...), nil},
		{"one not counted", append([]events.Row{sampled("A", "A.small", 990, 16000),
			sampled("byte[]", "A.large", 10, 16000)},
			exact("A", 999, 16000), counted[1]), []string{"exact objects"}},
		{"arrays not counted", append([]events.Row{sampled("A", "A.small", 990, 16000),
			sampled("byte[]", "A.large", 10, 16000)},
			exact("byte[]", 9, 14400), counted[0]), []string{"exact bytes, arrays"}},
		{"another class", append([]events.Row{sampled("A", "A.small", 990, 16000),
			sampled("char[]", "A.large", 10, 16000)}, counted...),
			[]string{"sampled bytes, share"}},
		{"another method", append([]events.Row{sampled("A", "A.run", 990, 16000),
			sampled("byte[]", "A.large", 10, 16000)}, counted...),
			[]string{"sampled bytes, share"}},
		{"too much", append([]events.Row{sampled("A", "A.small", 990, 20000), sampled("byte[]", "A.large", 10, 20000)},
			counted...),
			[]string{"sampled bytes, all"}},
		{"nothing", nil, []string{
			"exact objects", "exact bytes", "exact bytes, arrays", "sampled bytes, share", "sampled bytes, all",
		}},
	} {
		j.check(t, judgeSites(truth, j.rows))
	}
}
