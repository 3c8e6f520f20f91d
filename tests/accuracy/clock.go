package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// A clockTrial is one guest to profile with one clock.
type clockTrial struct {
	trial
	clock attach.Clock
	known bool // the clock may fail: the result is shown, and nothing more
}

func (t clockTrial) String() string { return fmt.Sprintf("clock, %s, %v", t.clock, t.trial) }

// A clockResult is the result of a clockTrial.
type clockResult struct {
	result
	of clockTrial
}

// planClock records guests that state the shares of their methods, with the kernel's own tick as
// the clock.
func planClock(jdks []jvm.JDK) plan {
	return harness.Trials[meter, clockTrial, clockResult]{
		All: func(short bool) []clockTrial { return clockTrials(jdks[0], short) },
		Run: harness.OneByOne(meter.tryClock),
		Tables: func(results []clockResult) []harness.Table {
			return []harness.Table{{Marker: "clock", Table: clockTable(results)}}
		},
		OK: func(results []clockResult) bool {
			return !slices.ContainsFunc(results, func(r clockResult) bool { return r.failed() && !r.of.known })
		},
	}.Plan
}

// clockTrials are the guests in their default flavour at the kernel's tick, or those of the short
// form. Work in step with the tick is profiled with both clocks. The short form shows shares and
// judges none: it runs beside other tests, and where threads compete for CPUs, the kernel takes
// those away at its tick, so that a worker's next piece of work begins right behind one.
func clockTrials(jdk jvm.JDK, short bool) (trials []clockTrial) {
	flavour := guests.Flavours()[0]
	for _, program := range guests.Programs() {
		if program.Runs(flavour, jdk.Version) && (!short || program.Name == "Plain") {
			trials = append(trials, clockTrial{trial{program: program, flavour: flavour, jdk: jdk}, attach.TickClock,
				short})
		}
	}
	if short {
		return trials
	}
	periodic := trial{program: guests.Periodic(), flavour: flavour, jdk: jdk}
	return append(trials, clockTrial{periodic, attach.TickClock, true}, clockTrial{periodic, attach.CPUClock, false})
}

// tryClock samples at the rate of the kernel's tick, and with a clock of its own a little less
// often, so that the two beat. There are few samples, so it takes longer.
func (m meter) tryClock(ctx context.Context, t clockTrial) (clockResult, error) {
	hz, err := attach.KernelHz()
	if err != nil {
		return clockResult{}, err
	}
	if t.clock != attach.TickClock {
		hz--
	}
	r, err := m.shares(ctx, t.trial, profiler.Options{
		Frequency: hz, Duration: 4 * m.how.recording, Extra: []string{"--clock=" + string(t.clock)},
	})
	return clockResult{r, t}, err
}

// clockTable has a row for each trial, with the largest error.
func clockTable(results []clockResult) report.Table {
	table := report.Table{Header: []string{"guest", "JDK", "clock", "largest error"}}
	for _, r := range results {
		table.Add(r.program.Name, r.jdk.Release, string(r.of.clock), r.worst())
	}
	return table
}
