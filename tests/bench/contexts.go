package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
	"github.com/vmprof-agent/vmprof-agent/tests/suite"
)

// contextRate is the rate beside real programs, in samples a second of each CPU.
const contextRate = 999

// contexts measures what a sample of real programs costs, in all modes.
func (b bench) contexts(ctx context.Context) ([]harness.Table, error) {
	var costs sampleCosts
	for _, name := range b.guests {
		if err := b.contextsOf(ctx, name, &costs); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return []harness.Table{{Marker: "contexts", Table: contextTable(&costs)}}, nil
}

func (b bench) contextsOf(ctx context.Context, name string, costs *sampleCosts) error {
	how := b.how.depth
	guest, err := suite.Start(ctx, b.jdk, name)
	if err != nil {
		return err
	}
	defer guest.Close()
	if err := b.warmUp(guest); err != nil {
		return err
	}
	return b.inTurn(func(_ int, m mode) (err error) {
		p, err := b.startProbe(ctx, m, guest.PID(), contextRate)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, p.close()) }()
		rest, err := p.during(sleep(how.rest))
		if err != nil {
			return err
		}
		if _, err := guest.RunFor(how.learn); err != nil {
			return err
		}
		work, err := p.during(func() error { _, err := guest.RunFor(2 * how.span); return err })
		if err != nil {
			return err
		}
		cost, err := costOfSamples(m, work, rest)
		if err != nil {
			return err
		}
		costs.add(place{guest: name, rate: contextRate}, m, cost)
		fmt.Fprintf(b.out, "%d Hz, %s, %s: %v\n", contextRate, m, name, cost)
		return nil
	})
}

// contextTable is what samples of real programs cost.
func contextTable(costs *sampleCosts) report.Table {
	verdict := []string{"chain above empty, ns", fmt.Sprintf("aim: ≤ %d", chainAim)}
	table := report.Table{Header: slices.Concat([]string{"guest", "Hz"}, costHeader, verdict)}
	for _, at := range costs.places {
		over := costs.over(at, modeChain)
		verdict = []string{over.Whole(), over.AtMost(chainAim)}
		table.Add(slices.Concat([]string{at.guest, fmt.Sprint(at.rate)}, costCells(costs, at), verdict)...)
	}
	return table
}
