package main

import (
	"os"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/tests/events"
)

func TestJudgeFaults(t *testing.T) {
	truth := events.Truth{Faults: []events.Faulted{{Method: "F.leaf", Class: "Leaf", Bytes: 4096 * 4096}}}
	fault := func(class string, faults float64) events.Row {
		return row(events.Labels{Class: class}, 1, []float64{faults}, "F.leaf", "F.run")
	}
	pages := float64(4096*4096) / float64(os.Getpagesize())
	for _, j := range []judgement{
		{"right", []events.Row{fault("Leaf", 0.9*pages), fault("", 0.1*pages)}, nil},
		{"too few", []events.Row{fault("Leaf", 0.8*pages)}, []string{"faults"}},
		{"without a class", []events.Row{fault("Leaf", 0.7*pages), fault("", 0.3*pages)},
			[]string{"faults with a class"}},
		{"a wrong class", []events.Row{fault("Leaf", 0.9*pages), fault("Broad", 0.1*pages)}, []string{"right classes"}},
	} {
		j.check(t, judgeFaults(truth, j.rows))
	}
}
