package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
	"github.com/vmprof-agent/vmprof-agent/tests/suite"
)

// busyRate is the rate at which the whole machine is recorded, in samples a second of each CPU.
const busyRate = 999

// usualRate is the agent's default.
const usualRate = 99

// busyGuests keep two CPUs busy.
var busyGuests = []string{"Xalan", "Javac"}

// A busyRun is a recording of two busy CPUs.
type busyRun struct {
	rate int     // samples a second of each CPU
	core float64 // how much of one CPU the agent may use meanwhile
	cost agentCost
}

// busyBPFAim is how long the sampling program may take for a sample of any process, kernel frames
// included, in nanoseconds.
const busyBPFAim = 4700

// busy records the whole machine while two guests keep two CPUs busy, and returns what the agent
// used meanwhile.
func (b bench) busy(ctx context.Context) ([]harness.Table, error) {
	runs := []busyRun{{rate: busyRate, core: 0.007}, {rate: usualRate, core: 0.002}}
	if b.how.cold {
		runs = runs[:1]
	}
	guests, err := b.startBusy(ctx)
	if err != nil {
		return nil, err
	}
	defer closeAll(guests)
	// The first second names what is running; what a recording costs is what comes after.
	for i := range runs {
		cost, _, err := b.watch(ctx, profiler.Options{Frequency: runs[i].rate}, (*profiler.AgentRun).WaitSampling,
			func() error { return runAll(guests, runFor(time.Second)) },
			func() error { return runAll(guests, runFor(b.how.busy)) })
		if err != nil {
			return nil, err
		}
		cost.rss = max(cost.rss, cost.stats.RSSBytes)
		runs[i].cost = cost
	}
	return []harness.Table{{Marker: "busy", Table: busyTable(runs)}}, nil
}

// startBusy starts guests that keep two CPUs busy, and warms them up.
func (b bench) startBusy(ctx context.Context) (guests []*suite.Guest, err error) {
	names := busyGuests
	if b.how.cold {
		names = []string{"Xalan", "Xalan"} // Its iterations are short.
	}
	for _, name := range names {
		guest, err := suite.Start(ctx, b.jdk, name)
		if err != nil {
			closeAll(guests)
			return nil, err
		}
		guests = append(guests, guest)
	}
	if err := runAll(guests, b.warmUp); err != nil {
		closeAll(guests)
		return nil, err
	}
	return guests, nil
}

func closeAll(guests []*suite.Guest) {
	for _, guest := range guests {
		guest.Close()
	}
}

func runFor(wall time.Duration) func(*suite.Guest) error {
	return func(g *suite.Guest) error { _, err := g.RunFor(wall); return err }
}

// runAll has all guests run at once.
func runAll(guests []*suite.Guest, do func(*suite.Guest) error) error {
	results := make(chan error, len(guests))
	for _, guest := range guests {
		go func() { results <- do(guest) }()
	}
	var err error
	for range guests {
		err = errors.Join(err, <-results)
	}
	return err
}

func busyTable(runs []busyRun) report.Table {
	table := report.Table{Header: []string{"two busy CPUs", "Hz", "measured", "aim", ""}}
	for _, r := range runs {
		c, add := r.cost, func(what, measured, aim, verdict string) {
			table.Add(what, fmt.Sprint(r.rate), measured, aim,
				verdict)
		}
		bpf := harness.Per(float64(c.stats.BPFTime/time.Nanosecond), float64(c.stats.Attempted))
		add("agent, % of a core", fmt.Sprintf("%.2f", 100*c.core()), fmt.Sprintf("≤ %.1f", 100*r.core),
			report.Verdict(c.core() <= r.core))
		add("agent, peak MB", megabytes(c.rss), "≤ "+megabytes(rssAim), report.Verdict(c.rss <= rssAim))
		add("BPF, ns a sample", fmt.Sprintf("%.0f", bpf), fmt.Sprintf("≤ %d", busyBPFAim),
			report.Verdict(bpf <= busyBPFAim))
		add("samples", fmt.Sprint(c.stats.Delivered), "", "")
		add("samples lost", fmt.Sprint(c.stats.Lost()), "0", report.Verdict(c.stats.Lost() == 0))
	}
	return table
}
