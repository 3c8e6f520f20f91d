package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
	"github.com/vmprof-agent/vmprof-agent/tests/stacks"
)

// A result is what came of a trial.
type result struct {
	trial
	samples  int64 // of the guest's own threads
	verdicts []verdict
}

// The shares section records guests that say what share of the samples each method and thread must have.
type shares struct {
	trials  []trial
	results []result
}

func (s *shares) run(ctx context.Context, m meter) error {
	for _, t := range s.trials {
		r, err := m.try(ctx, t)
		if err != nil {
			return fmt.Errorf("%v: %w", t, err)
		}
		if err := r.print(m); err != nil {
			return err
		}
		s.results = append(s.results, r)
	}
	return nil
}

func (s *shares) tables() []namedTable { return []namedTable{{"shares", sharesTable(s.results)}} }

func (s *shares) ok() bool {
	for _, r := range s.results {
		if slices.ContainsFunc(r.verdicts, func(v verdict) bool { return !v.ok() }) {
			return false
		}
	}
	return true
}

func (m meter) try(ctx context.Context, t trial) (result, error) {
	guest, err := guests.Start(ctx, t.jdk, t.program, t.flavour)
	if err != nil {
		return result{}, err
	}
	defer guest.Close()
	time.Sleep(m.how.warmup)

	recording, err := m.agent.Record(ctx, profiler.Options{
		PID: guest.PID(), Frequency: m.how.frequency, Duration: m.how.recording,
	})
	if err != nil {
		return result{}, err
	}
	began := time.Unix(0, recording.Profile.TimeNanos)
	truth, err := guest.Truth(began, began.Add(time.Duration(recording.Profile.DurationNanos)))
	if err != nil {
		return result{}, err
	}
	if err := recording.Stats.CheckIdentities(); err != nil {
		return result{}, err
	}
	own := stacks.OnThread(stacks.Of(recording.Profile), t.program.Thread)
	r := result{trial: t, verdicts: t.judge(truth, own)}
	r.samples = stacks.Count(own, func(stacks.Stack) bool { return true })
	return r, nil
}

// print prints a line for each verdict.
func (r result) print(m meter) error {
	table := report.Table{Header: []string{r.String(), "truth %", "measured %", "tolerance", ""}}
	for _, v := range r.verdicts {
		table.Add(v.what, percent(v.truth), percent(v.measured), percent(v.tolerance), report.Verdict(v.ok()))
	}
	if err := table.Print(m.out); err != nil {
		return err
	}
	for _, v := range r.verdicts {
		if v.ok() || len(v.examples) == 0 {
			continue
		}
		if _, err := fmt.Fprintf(m.out, "%s:\n  %s\n", v.what, strings.Join(v.examples, "\n  ")); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(m.out, "%d samples\n\n", r.samples)
	return err
}

func percent(share float64) string { return fmt.Sprintf("%.2f", 100*share) }
