package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// The aims for the agent's own rate within 10 s on the reference guest: in the mean, and for each
// program.
const (
	overlapAim  = 95.0 // %
	overheadAim = 0.01 // share of the guest's CPU time; the agent's default budget
)

// planBudget records guests at the rate that the agent chooses, each alone. The table shows which
// aims are missed.
func planBudget() plan {
	return harness.Trials[meter, budgetTrial, budgetResult]{
		All: budgetTrials,
		Run: harness.OneByOne(meter.recordBudget),
		Tables: func(results []budgetResult) []harness.Table {
			return []harness.Table{{Marker: "budget", Table: budgetTable(results)}}
		},
	}.Plan
}

// A budgetTrial is a program to record.
type budgetTrial struct{ program, engine string }

// String is the trial's name, which -run matches.
func (t budgetTrial) String() string { return callTrial(t.program, "budget") }

// A budgetResult has the means of several recordings.
type budgetResult struct {
	budgetTrial
	rate            string  // at the end of the last
	overhead, noise float64 // shares of CPU time: measured, and of control
	said            float64 // the same according to the agent
	overlap, ideal  float64 // %
	calls           float64 // sampled
}

func (r budgetResult) String() string {
	return fmt.Sprintf("%v: %s: overhead %+.2f%% (control %+.2f%%, the agent says %.2f%%), overlap %.1f of ideally "+
		"%.1f after %.0f calls",
		r.budgetTrial, r.rate, 100*r.overhead, 100*r.noise, 100*r.said, r.overlap, r.ideal, r.calls)
}

func budgetTrials(short bool) (trials []budgetTrial) {
	for _, program := range guests.VMPrograms() {
		trials = append(trials, budgetTrial{program, "page"})
	}
	trials = append(trials, budgetTrial{parser, "usdt"})
	if short {
		trials = trials[:1]
	}
	return trials
}

func (m meter) recordBudget(ctx context.Context, t budgetTrial) (r budgetResult, err error) {
	r.budgetTrial = t
	paced, err := startPaced(ctx, m, t.engine, []string{t.program})
	if err != nil {
		return r, err
	}
	defer func() { err = closing(paced, err) }()
	turns, err := paced.alternate(ctx, []profile.Rate{{}}, m.how.pairs, m.how.budget/2, m.how.budget, nil)
	if err != nil {
		return r, err
	}
	g := paced.courses(turns)[0]
	pairs := float64(m.how.pairs)
	for k := range m.how.pairs {
		recorded := g.recorded(k)
		r.overhead += g.overhead(k) / pairs
		r.overlap += g.overlap(k) / pairs
		r.ideal += g.ideal(k) / pairs
		r.calls += recorded.calls / pairs
		r.said += recorded.stats.Cost().Seconds() / recorded.cpu.Seconds() / pairs
		rate := recorded.stats.Rates[t.engine]
		r.rate = profile.Rate{Hz: rate.Hz, Burst: profile.Burst{Stride: rate.Stride, Samples: rate.Samples}}.String()
		if k > 0 {
			r.noise += g.control(k-1) / (pairs - 1)
		}
	}
	fmt.Fprintln(m.out, r)
	return r, nil
}

func budgetTable(results []budgetResult) report.Table {
	table := report.Table{Header: []string{
		"program", "rate at the end", "overhead %", "control %", "the agent says %", "calls sampled", "overlap %",
		"ideal", "",
	}}
	var vm budgetResult
	var programs float64
	for _, r := range results {
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
	return table
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
	r.overhead, r.noise, r.said, r.overlap, r.ideal, r.calls = r.overhead/n, r.noise/n, r.said/n, r.overlap/n,
		r.ideal/n, r.calls/n
}

// cells are the numbers of a row, with the missed aims. PHP has no aim for its overlap.
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
		fmt.Sprintf("%.0f", r.calls), fmt.Sprintf("%.1f", r.overlap), fmt.Sprintf("%.1f", r.ideal),
		strings.Join(missed, ", "),
	}
}
