package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/view/audit"
	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// A duelTrial is two programs that are recorded at the same time, several times.
type duelTrial struct {
	name       string
	fast, slow guests.Program
	takes
	runs int
}

// String is the trial's name.
func (t duelTrial) String() string { return t.name }

// A duelResult is a row.
type duelResult struct {
	duelTrial
	change, found []float64 // percent, of each run: by the guests' clocks, and as estimated
	within        float64   // mean of the intervals' halves
	verdicts      map[audit.Verdict]int
	right, wrong  int
}

// A true difference above the first must be found; one below the second must not.
const (
	mustFind = 10.0 // percent
	leastGap = 1.0
)

// judge counts a run as wrong if the guests' clocks contradict its verdict by more than half a
// percent, or if a required verdict is missing.
func (r *duelResult) judge(change float64, d audit.Difference) {
	const clocks = 0.5 // percent: the ledgers lack what is under way at both ends
	r.change, r.found = append(r.change, change), append(r.found, d.Percent)
	r.within += (d.High - d.Low) / 2 / float64(r.runs)
	r.verdicts[d.Verdict]++
	switch {
	case d.Verdict == audit.More && change > leastGap-clocks, d.Verdict == audit.Less && change < clocks-leastGap,
		d.Verdict == audit.Same && math.Abs(change) < leastGap+clocks, d.Verdict == audit.Undecided &&
			(math.Abs(change) < mustFind || r.runs == 1): // one run of a busy machine may not decide
		r.right++
	default:
		r.wrong++
	}
}

func planDuels(marker string, all func(l manner) []duelTrial) func(harness.Choice) harness.Job[lab] {
	return func(c harness.Choice) harness.Job[lab] {
		return harness.Trials[lab, duelTrial, duelResult]{
			All: func(short bool) []duelTrial {
				if short {
					return all(shortRun)[:1]
				}
				return all(longRun)
			},
			Run: harness.OneByOne(lab.duel),
			Tables: func(results []duelResult) []harness.Table {
				table := report.Table{Header: []string{"A and B", "runs", "seconds", "Hz",
					"B - A by the guests' clocks, %", "estimated, %", "interval ±", "slower", "faster", "the same",
					"undecided", "wrong"}}
				for _, r := range results {
					v := func(v audit.Verdict) string { return strconv.Itoa(r.verdicts[v]) }
					table.Add(r.name, strconv.Itoa(r.runs), fmt.Sprintf("%.0f",
						(time.Duration(r.windows)*r.window).Seconds()), strconv.Itoa(r.frequency),
						fmt.Sprintf("%.1f to %.1f", slices.Min(r.change), slices.Max(r.change)),
						fmt.Sprintf("%.1f to %.1f", slices.Min(r.found), slices.Max(r.found)),
						fmt.Sprintf("%.1f", r.within), v(audit.More), v(audit.Less), v(audit.Same), v(audit.Undecided),
						strconv.Itoa(r.wrong))
				}
				return []harness.Table{{Marker: marker, Table: table}}
			},
			OK: func(results []duelResult) bool {
				return !slices.ContainsFunc(results, func(r duelResult) bool { return tooMany(r.wrong, r.runs, alpha) })
			},
		}.Plan(c)
	}
}

// duel runs a trial.
func (l lab) duel(ctx context.Context, t duelTrial) (duelResult, error) {
	r := duelResult{duelTrial: t, verdicts: make(map[audit.Verdict]int)}
	for range t.runs {
		d, err := l.fight(ctx, t.takes, t.fast, t.slow)
		if err != nil {
			return r, err
		}
		whole := d.compare().Whole
		r.judge(d.change(), whole)
		fmt.Fprintf(l.out, "%s: %.2f %% by the guests' clocks, %.2f (%.2f to %.2f) estimated: %s\n", t, d.change(),
			whole.Percent, whole.Low, whole.High, named(whole.Verdict))
	}
	return r, nil
}

// paced are two guests, of which one does some percent more work in half of its time.
func paced(m manner) (list []duelTrial) {
	for _, percent := range []int{0, 2, 5, 10, 20} {
		list = append(list, duelTrial{
			name: fmt.Sprintf("half of the work %d %% slower", percent), fast: guests.Paced(0),
			slow:  guests.Paced(percent),
			takes: takes{windows: m.halves, window: m.window, frequency: 999}, runs: m.duels,
		})
	}
	return list
}

// pairs are decisions of the JIT compiler.
func pairs(m manner) (list []duelTrial) {
	for _, p := range guests.Pairs() {
		list = append(list, duelTrial{
			name: p.Name, fast: p.Fast, slow: p.Slow, takes: takes{windows: 24, window: time.Second / 2,
				frequency: 999}, runs: m.pairs,
		})
	}
	return list
}
