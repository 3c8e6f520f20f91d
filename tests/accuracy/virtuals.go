package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
	"github.com/vmprof-agent/vmprof-agent/tests/stacks"
)

// planVirtuals records virtual threads most of whose frames are on the heap, while a collector
// moves those. It requires that incomplete stacks state the reason. Their number is an aim.
func planVirtuals() plan {
	return harness.Trials[meter, virtualsTrial, virtualsComplete]{
		All: virtualsTrials,
		Run: harness.OneByOne(meter.virtuals),
		Tables: func(results []virtualsComplete) []harness.Table {
			return []harness.Table{{Marker: "virtuals", Table: virtualsTable(results)}}
		},
		OK: func(results []virtualsComplete) bool {
			return !slices.ContainsFunc(results, func(c virtualsComplete) bool {
				return c.samples == 0 ||
					len(c.wrong) > 0
			})
		},
	}.Plan
}

// A virtualsTrial is a collector and a JDK's version.
type virtualsTrial struct {
	collector string // as in collectors
	version   int
}

// String is the trial's name, which -run matches.
func (t virtualsTrial) String() string {
	return fmt.Sprintf("virtuals, %s, JDK %d", t.collector, t.version)
}

// A virtualsComplete is how many stacks of the virtual threads are complete.
type virtualsComplete struct {
	virtualsTrial
	complete
}

// virtualsJDKs are the recorded versions, with these collectors. Versions that the machine lacks
// are fetched. How frames are kept on the heap has changed between these versions; JDK 21 has
// another ZGC.
var virtualsJDKs = []struct {
	version    int
	collectors []string
}{
	{21, []string{"G1", "Z"}},
	{25, collectors},
	{26, []string{"G1", "Z"}},
	{28, []string{"G1", "Z"}},
}

func virtualsTrials(short bool) (trials []virtualsTrial) {
	if short {
		return nil
	}
	for _, jdk := range virtualsJDKs {
		for _, collector := range jdk.collectors {
			trials = append(trials, virtualsTrial{collector, jdk.version})
		}
	}
	return trials
}

// find returns the JDK of that version, an installed one or else a fetched one.
func find(ctx context.Context, version int) (jvm.JDK, error) {
	jdks, err := jvm.Find(jvm.Root)
	if err != nil {
		return jvm.JDK{}, err
	}
	for _, jdk := range jdks {
		if jdk.Version == version {
			return jdk, nil
		}
	}
	if jdks, err = jvm.Fetch(ctx, strconv.Itoa(version)); err != nil {
		return jvm.JDK{}, err
	}
	return jdks[0], nil
}

func virtualsTable(results []virtualsComplete) report.Table {
	table := report.Table{Header: []string{"collector", "JDK", "whole stacks", "of samples", "the rest"}}
	for _, c := range results {
		table.Add(c.collector, c.jdk.Release, percent(c.whole)+" %", fmt.Sprint(c.samples), c.rest())
	}
	return table
}

// wholeVirtuals is the share of the stacks on carriers that must be complete. It is lower than for
// others: while the JVM copies the frames of a virtual thread, some are in two places or in none.
const wholeVirtuals = 0.99

func (m meter) virtuals(ctx context.Context, t virtualsTrial) (virtualsComplete, error) {
	program := guests.Virtuals()
	flavour := guests.Flavour{Flags: []string{"-XX:+Use" + t.collector + "GC", "-Xmx128m", "-Dguest.litter=true"}}
	jdk, err := find(ctx, t.version)
	if err != nil {
		return virtualsComplete{}, err
	}
	guest, err := guests.Start(ctx, jdk, program, flavour)
	if err != nil {
		return virtualsComplete{}, err
	}
	defer guest.Close()
	time.Sleep(m.how.warmup)
	recording, err := m.agent.Record(ctx, profiler.Options{
		PID: guest.PID(), Frequency: m.how.frequency, Duration: 2 * m.how.recording,
	})
	if err != nil {
		return virtualsComplete{}, err
	}
	if err := recording.Stats.CheckIdentities(); err != nil {
		return virtualsComplete{}, err
	}
	c := virtualsComplete{t, summarise(stacks.OnThread(stacks.FromProfile(recording.Profile), program.Thread))}
	c.jdk = jdk
	fmt.Fprintf(m.out, "%v: %.2f%% of %d stacks are whole: %s\n", t, 100*c.whole, c.samples,
		report.Verdict(c.whole >= wholeVirtuals))
	c.printRest(m.out)
	return c, nil
}
