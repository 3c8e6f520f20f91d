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

// busyGuests keep two CPUs busy.
var busyGuests = []string{"Xalan", "Jython"}

// coreAim is how much of one CPU the agent may use while it records two busy ones.
const coreAim = 0.01

// busy records the whole machine while two guests keep two CPUs busy, and returns what the agent used meanwhile.
func (b bench) busy(ctx context.Context) ([]harness.Table, error) {
	var guests []*suite.Guest
	for _, name := range busyGuests {
		guest, err := suite.Start(ctx, b.jdk, name)
		if err != nil {
			return nil, err
		}
		defer guest.Close()
		guests = append(guests, guest)
	}
	if err := runAll(guests, b.warmUp); err != nil {
		return nil, err
	}
	// The first second names what is running; what a recording costs is what comes after.
	cost, _, err := b.watch(ctx, profiler.Options{Frequency: busyRate}, (*profiler.AgentRun).WaitSampling,
		func() error { return runAll(guests, runFor(time.Second)) },
		func() error { return runAll(guests, runFor(b.how.busy)) })
	if err != nil {
		return nil, err
	}
	cost.rss = max(cost.rss, cost.stats.RSSBytes)
	return []harness.Table{{Marker: "busy", Table: busyTable(cost)}}, nil
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

func busyTable(c agentCost) report.Table {
	table := report.Table{Header: []string{"two busy CPUs at 999 Hz", "measured", "aim", ""}}
	table.Add("agent, % of a core", fmt.Sprintf("%.2f", 100*c.core()), fmt.Sprintf("≤ %.0f", 100*coreAim),
		report.Verdict(c.core() <= coreAim))
	table.Add("agent, peak MB", megabytes(c.rss), "≤ "+megabytes(rssAim), report.Verdict(c.rss <= rssAim))
	table.Add("samples", fmt.Sprint(c.stats.Delivered), "", "")
	table.Add("samples lost", fmt.Sprint(c.stats.Lost()), "0", report.Verdict(c.stats.Lost() == 0))
	return table
}
