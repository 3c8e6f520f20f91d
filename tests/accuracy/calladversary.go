package main

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// planAdversary records the program of Arnold & Grove's figure 1, which repeatedly makes two short
// calls after a long time without any. Nearly every tick comes in that time. So a profiler that
// takes the first call after a tick sees the first one and never the second, and this must show.
// Bursts must give both their share.
func planAdversary() plan {
	return harness.Trials[meter, adversaryTrial, adversaryResult]{
		All: adversaryTrials,
		Run: meter.recordAdversary,
		Tables: func(results []adversaryResult) []harness.Table {
			return []harness.Table{{Marker: "adversary", Table: adversaryTable(results)}}
		},
		OK: func(results []adversaryResult) bool {
			return !slices.ContainsFunc(results, func(r adversaryResult) bool { return !r.ok() })
		},
	}.Plan
}

// An adversaryTrial is how the program is recorded.
type adversaryTrial struct {
	profile.Rate
	timer bool // the profiler that must be misled
}

// String is the trial's name, which -run matches.
func (t adversaryTrial) String() string {
	return callTrial("adversary", "figure 1, "+burstName(t.Burst))
}

const (
	// burstTolerance is the permitted error of bursts: 4 standard deviations (sigmas) of a share of
	// a half in minDraws independent calls.
	burstTolerance = 0.05
	minDraws       = 1600
	// visible is the least error of the timer: 5 times as large, and for one call per tick in half
	// a second, 3.5 standard deviations.
	visible = 0.25
)

func adversaryTrials(bool) []adversaryTrial {
	return []adversaryTrial{
		{profile.Rate{Hz: gridHz, Burst: profile.Burst{Stride: 1, Samples: 1}}, true},
		{profile.Rate{Hz: gridHz, Burst: profile.Burst{Stride: 7, Samples: 32}}, false},
	}
}

// An adversaryResult is the fraction of the two calls that were call_1: recorded, and in truth.
type adversaryResult struct {
	adversaryTrial
	calls           float64 // sampled
	measured, truth float64 // 0 to 1
}

func (r adversaryResult) ok() bool {
	off := math.Abs(r.measured - r.truth)
	if r.timer {
		return off >= visible
	}
	return off <= burstTolerance && r.calls >= minDraws
}

func (r adversaryResult) want() string {
	if r.timer {
		return fmt.Sprintf("off by %.0f or more", 100*visible)
	}
	return fmt.Sprintf("±%.0f", 100*burstTolerance)
}

func (m meter) recordAdversary(ctx context.Context, trials []adversaryTrial) (results []adversaryResult, err error) {
	t, err := startPaced(ctx, m, "page", []string{"adversary"})
	if err != nil {
		return nil, err
	}
	defer func() { err = closing(t, err) }()
	for _, trial := range trials {
		turn, err := t.record(ctx, trial.Rate, m.how.cell)
		if err != nil {
			return nil, fmt.Errorf("%v: %w", trial, err)
		}
		r := turn[0]
		results = append(results, adversaryResult{
			adversaryTrial: trial, calls: r.calls, measured: firstCalls(r.found), truth: firstCalls(r.truth),
		})
	}
	return results, nil
}

// firstCalls is the fraction of the adversary's two calls that are call_1; NaN if there is neither.
func firstCalls(g *callGraph) float64 {
	callees := g.Callees()
	return callees["call_1"] / (callees["call_1"] + callees["call_2"])
}

func adversaryTable(results []adversaryResult) report.Table {
	table := report.Table{Header: []string{"figure 1", "calls sampled", "call_1 %", "truth %", "tolerance", ""}}
	for _, r := range results {
		name := "bursts, " + r.Rate.String()
		if r.timer {
			name = "timer only, " + r.Rate.String()
		}
		table.Add(name, fmt.Sprintf("%.0f", r.calls), percent(r.measured), percent(r.truth), r.want(),
			report.Verdict(r.ok()))
	}
	return table
}
