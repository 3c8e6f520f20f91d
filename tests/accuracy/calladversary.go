package main

import (
	"context"
	"fmt"
	"math"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// The adversary section records the program of Arnold & Grove's figure 1, which makes two short calls after a long time
// without any, over and over. Nearly every tick comes in that time. So who takes the call after a tick sees the first
// one and never the second, and this must show; bursts must give both their share.
type adversary struct {
	trials  []adversaryTrial
	results []adversaryResult
}

// An adversaryTrial is how the program is recorded.
type adversaryTrial struct {
	profile.Rate
	timer bool // it is the one that must be misled
}

// String is the trial's name: what -run is matched with.
func (t adversaryTrial) String() string {
	return callTrial("adversary", "figure 1, "+burstName(t.Burst))
}

const (
	// burstTolerance is how far from the truth bursts may be. It is 4 standard deviations (sigmas) of a share of a half
	// in minDraws independent calls.
	burstTolerance = 0.05
	minDraws       = 1600
	// visible is how far from the truth the timer must be at least: 5 times as far, and with a call a tick for half a
	// second 3.5 standard deviations of chance.
	visible = 0.25
)

func planAdversary(o options) (trials []adversaryTrial) {
	for _, t := range []adversaryTrial{
		{profile.Rate{Hz: gridHz, Burst: profile.Burst{Stride: 1, Samples: 1}}, true},
		{profile.Rate{Hz: gridHz, Burst: profile.Burst{Stride: 7, Samples: 32}}, false},
	} {
		if o.run.MatchString(t.String()) {
			trials = append(trials, t)
		}
	}
	return trials
}

// An adversaryResult is what part of the two calls were call_1: recorded, and in truth.
type adversaryResult struct {
	adversaryTrial
	calls           float64 // that were sampled
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

func (s *adversary) run(ctx context.Context, m meter) (err error) {
	if len(s.trials) == 0 {
		return nil
	}
	t, err := startTurns(ctx, m, "page", []string{"adversary"})
	if err != nil {
		return err
	}
	defer func() { err = closing(t, err) }()
	g := t.guests[0]
	for k, trial := range s.trials {
		if err := t.record(ctx, trial.Rate, m.how.cell); err != nil {
			return fmt.Errorf("%v: %w", trial, err)
		}
		r := g.recorded[k]
		s.results = append(s.results, adversaryResult{
			adversaryTrial: trial, calls: r.calls, measured: firstCalls(r.found), truth: firstCalls(r.truth),
		})
	}
	table := s.tables()[0]
	if err := table.Print(m.out); err != nil {
		return err
	}
	_, err = fmt.Fprintln(m.out)
	return err
}

// firstCalls is which part of the adversary's two calls are to call_1; NaN if there is neither.
func firstCalls(g *callGraph) float64 {
	callees := g.Callees()
	return callees["call_1"] / (callees["call_1"] + callees["call_2"])
}

func (s *adversary) tables() []namedTable {
	table := report.Table{Header: []string{"figure 1", "calls sampled", "call_1 %", "truth %", "tolerance", ""}}
	for _, r := range s.results {
		name := "bursts, " + r.Rate.String()
		if r.timer {
			name = "timer only, " + r.Rate.String()
		}
		table.Add(name, fmt.Sprintf("%.0f", r.calls), percent(r.measured), percent(r.truth), r.want(), report.Verdict(r.ok()))
	}
	return []namedTable{{"adversary", table}}
}

func (s *adversary) ok() bool {
	for _, r := range s.results {
		if !r.ok() {
			return false
		}
	}
	return true
}
