package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// What the rate that the agent chooses is meant to reach within 10 s on the reference guest: in the mean, and for each
// program.
const (
	overlapAim  = 95.0 // %
	overheadAim = 0.01 // of the guest's CPU time; the agent's default budget
)

// The budget section records guests at the rate that the agent chooses by itself, each alone.
type budget struct {
	trials  []budgetTrial
	results []budgetResult
}

// A budgetTrial is a program to record.
type budgetTrial struct{ program, engine string }

// String is the trial's name: what -run is matched with.
func (t budgetTrial) String() string { return callTrial(t.program, "budget") }

// A budgetResult has the means of several recordings.
type budgetResult struct {
	budgetTrial
	rate            string  // at the end of the last
	overhead, noise float64 // shares of CPU time: measured, and of control
	said            float64 // the same, as the agent reckons
	overlap, ideal  float64 // %
	calls           float64 // sampled
}

func (r budgetResult) String() string {
	return fmt.Sprintf("%v: %s: overhead %+.2f%% (control %+.2f%%, the agent says %.2f%%), overlap %.1f of ideally %.1f after %.0f calls",
		r.budgetTrial, r.rate, 100*r.overhead, 100*r.noise, 100*r.said, r.overlap, r.ideal, r.calls)
}

func planBudget(o options) (trials []budgetTrial) {
	var all []budgetTrial
	for _, program := range guests.VMPrograms() {
		all = append(all, budgetTrial{program, "page"})
	}
	all = append(all, budgetTrial{parser, "usdt"})
	if o.short {
		all = all[:1]
	}
	for _, t := range all {
		if o.run.MatchString(t.String()) {
			trials = append(trials, t)
		}
	}
	return trials
}

func (s *budget) run(ctx context.Context, m meter) error {
	for _, t := range s.trials {
		r, err := t.run(ctx, m)
		if err != nil {
			return fmt.Errorf("%v: %w", t, err)
		}
		fmt.Fprintln(m.out, r)
		s.results = append(s.results, r)
	}
	if len(s.results) == 0 {
		return nil
	}
	table := s.tables()[0]
	fmt.Fprintln(m.out)
	return table.Print(m.out)
}

func (t budgetTrial) run(ctx context.Context, m meter) (r budgetResult, err error) {
	r.budgetTrial = t
	turns, err := startTurns(ctx, m, t.engine, []string{t.program})
	if err != nil {
		return r, err
	}
	defer func() { err = closing(turns, err) }()
	rest := m.how.budget / 2
	if err := turns.rest(rest); err != nil {
		return r, err
	}
	g := turns.guests[0]
	pairs := float64(m.how.pairs)
	for k := range m.how.pairs {
		if err := turns.record(ctx, profile.Rate{}, m.how.budget); err != nil {
			return r, err
		}
		if err := turns.rest(rest); err != nil {
			return r, err
		}
		stats := g.recorded[k].stats
		r.overhead += g.overhead(k) / pairs
		r.overlap += g.overlap(k) / pairs
		r.ideal += g.ideal(k) / pairs
		r.calls += g.recorded[k].calls / pairs
		r.said += stats.Cost().Seconds() / g.recorded[k].cpu.Seconds() / pairs
		rate := stats.Rates[t.engine]
		r.rate = profile.Rate{Hz: rate.Hz, Burst: profile.Burst{Stride: rate.Stride, Samples: rate.Samples}}.String()
		if k > 0 {
			r.noise += g.control(k) / (pairs - 1)
		}
	}
	return r, nil
}

// ok is true: the table says which aims are missed.
func (s *budget) ok() bool { return true }

func (s *budget) tables() []namedTable {
	table := report.Table{Header: []string{
		"program", "rate at the end", "overhead %", "control %", "the agent says %", "calls sampled", "overlap %", "ideal", "",
	}}
	var vm budgetResult
	var programs float64
	for _, r := range s.results {
		table.Add(append([]string{r.program, r.rate}, r.cells()...)...)
		if r.program != parser {
			programs++
			vm.add(r)
		}
	}
	if programs > 1 {
		vm.divide(programs)
		table.Add(append([]string{"mean of the reference guest", ""}, vm.cells()...)...)
	}
	return []namedTable{{"budget", table}}
}

func (r *budgetResult) add(o budgetResult) {
	r.overhead += o.overhead
	r.noise += o.noise
	r.said += o.said
	r.overlap += o.overlap
	r.ideal += o.ideal
	r.calls += o.calls
}

func (r *budgetResult) divide(n float64) {
	r.overhead, r.noise, r.said, r.overlap, r.ideal, r.calls = r.overhead/n, r.noise/n, r.said/n, r.overlap/n, r.ideal/n, r.calls/n
}

// cells are the numbers of a row, with what was missed. PHP has no aim for its overlap.
func (r budgetResult) cells() []string {
	var missed []string
	if r.overhead > overheadAim {
		missed = append(missed, "overhead "+report.Verdict(false))
	}
	if r.overlap < overlapAim && r.program != parser {
		missed = append(missed, "overlap "+report.Verdict(false))
	}
	if missed == nil {
		missed = []string{report.Verdict(true)}
	}
	return []string{
		fmt.Sprintf("%+.2f", 100*r.overhead), fmt.Sprintf("%+.2f", 100*r.noise), fmt.Sprintf("%.2f", 100*r.said),
		fmt.Sprintf("%.0f", r.calls), fmt.Sprintf("%.1f", r.overlap), fmt.Sprintf("%.1f", r.ideal), strings.Join(missed, ", "),
	}
}
