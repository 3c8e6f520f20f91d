package main

import (
	"context"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/agent/attach"
	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// A clockTrial is one guest to profile at the kernel's own tick.
type clockTrial struct{ trial }

func (t clockTrial) String() string { return "clock, tick, " + t.trial.String() }

// planClock records the guests of planShares at the kernel's own tick.
func planClock(jdks []jvm.JDK) plan {
	return harness.Trials[meter, clockTrial, result]{
		All: func(short bool) []clockTrial { return clockTrials(jdks[0], short) },
		Run: harness.OneByOne(meter.tryClock),
		Tables: func(results []result) []harness.Table {
			return []harness.Table{{Marker: "clock", Table: clockTable(results)}}
		},
		OK: func(results []result) bool { return !slices.ContainsFunc(results, result.failed) },
	}.Plan
}

// clockTrials are the guests in their default flavour, or those of the short form.
func clockTrials(jdk jvm.JDK, short bool) (trials []clockTrial) {
	for _, program := range guests.Programs() {
		flavour := guests.Flavours()[0]
		if program.Runs(flavour, jdk.Version) && (!short || program.Name == "Plain") {
			trials = append(trials, clockTrial{trial{program: program, flavour: flavour, jdk: jdk}})
		}
	}
	return trials
}

// tryClock samples at every tick. There are few of those, so it takes longer.
func (m meter) tryClock(ctx context.Context, t clockTrial) (result, error) {
	hz, err := attach.KernelHz()
	if err != nil {
		return result{}, err
	}
	return m.shares(ctx, t.trial, profiler.Options{
		Frequency: hz, Duration: 4 * m.how.recording, Extra: []string{"--clock=" + string(attach.TickClock)},
	})
}

// clockTable has a row for each guest, with the largest error.
func clockTable(results []result) report.Table {
	table := report.Table{Header: []string{"guest", "JDK", "--clock=" + string(attach.TickClock)}}
	for _, r := range results {
		table.Add(r.program.Name, r.jdk.Release, r.worst())
	}
	return table
}
