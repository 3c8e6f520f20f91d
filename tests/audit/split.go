package main

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/view/audit"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
	"github.com/vmprof-agent/vmprof-agent/tests/suite"
)

// leastShare is the least share of the methods that compare compares.
const leastShare = 0.0005

// A split is a real program whose recording is repeatedly split at random: the halves do not
// differ, until one method of one half is made slower (section 6.3 of the paper).
type split struct {
	program   string
	frequency int
}

// String is the trial's name.
func (s split) String() string { return fmt.Sprintf("split, %s, %d Hz", s.program, s.frequency) }

func splits(short bool) []split {
	if short {
		return []split{{"Xalan", 999}}
	}
	var list []split
	for _, program := range []string{"Xalan", "Xerces", "Jython", "H2", "Luindex", "Scalac"} {
		list = append(list, split{program, 999})
	}
	return append(list, split{"Xalan", 3999})
}

// A splitResult is a row.
type splitResult struct {
	split
	methods int
	samples float64 // in a window
	wrong   int     // comparisons with a false verdict
	method  string  // method that is made slower
	share   float64 // share of that method
	slower  []slowerResult
	experiments,
	windows int
}

type slowerResult struct {
	percent int
	found   int // by all methods that are compared
	alone   int // if only this method is compared
}

func planSplit(c harness.Choice) harness.Job[lab] {
	return harness.Trials[lab, split, splitResult]{
		All: splits, Run: harness.OneByOne(lab.split),
		Tables: func(results []splitResult) []harness.Table {
			table := report.Table{Header: []string{"program", "Hz", "windows a side", "samples in a window", "methods",
				"comparisons with a false verdict, %", "method made slower", "its share, %"}}
			for _, s := range results[0].slower {
				table.Header = append(table.Header, fmt.Sprintf("found at %d %%, %%", s.percent))
			}
			table.Header = append(table.Header, fmt.Sprintf("at %d %%, if no other is compared",
				results[0].slower[0].percent))
			for _, r := range results {
				row := []string{
					r.program, strconv.Itoa(r.frequency), strconv.Itoa(r.windows), fmt.Sprintf("%.0f", r.samples),
					strconv.Itoa(r.methods),
					percent(r.wrong, r.experiments), "`" + r.method + "`", fmt.Sprintf("%.1f", 100*r.share),
				}
				for _, s := range r.slower {
					row = append(row, percent(s.found, r.experiments))
				}
				table.Add(append(row, percent(r.slower[0].alone, r.experiments))...)
			}
			return []harness.Table{{Marker: "audit-splits", Table: table}}
		},
		OK: func(results []splitResult) bool {
			return !slices.ContainsFunc(results, func(r splitResult) bool {
				return tooMany(r.wrong, r.experiments,
					alpha)
			})
		},
	}.Plan(c)
}

// split records a program once and compares many halves.
func (l lab) split(ctx context.Context, s split) (splitResult, error) {
	how := takes{windows: 2 * l.halves, window: l.window, frequency: s.frequency}
	guest, err := suite.Start(ctx, l.jdk, s.program)
	if err != nil {
		return splitResult{}, err
	}
	defer guest.Close()
	if _, err := guest.RunFor(l.warmup * 5); err != nil {
		return splitResult{}, err
	}
	recorded, err := l.recorded(ctx, guest.PID(), how, func() error {
		_, err := guest.RunFor(time.Duration(how.windows+3) * how.window)
		return err
	})
	if err != nil {
		return splitResult{}, err
	}
	keys, shares := keysOf(recorded, leastShare)
	slices.Sort(keys)
	r := splitResult{split: s, methods: len(keys), experiments: l.experiments / 5, windows: l.halves}
	for _, w := range recorded {
		r.samples += w.Total.Samples / float64(len(recorded))
	}
	r.method = slices.MinFunc(keys, func(a, b string) int { // the method with about a tenth of the time
		return int(1e6 * (math.Abs(shares[a]-0.1) - math.Abs(shares[b]-0.1)))
	})
	r.share = shares[r.method]
	random := rand.New(rand.NewPCG(2009, uint64(s.frequency)))
	slower := []int{5, 10, 20}
	r.slower = make([]slowerResult, len(slower))
	for range r.experiments {
		random.Shuffle(len(recorded), func(i, j int) { recorded[i], recorded[j] = recorded[j], recorded[i] })
		a, b := recorded[:l.halves], recorded[l.halves:]
		if decided(audit.Compare(oneRun(a), oneRun(b), keys, &audit.Options{Alpha: alpha})) {
			r.wrong++
		}
		for i, by := range slower {
			scaled := oneRun(made(b, r.method, 1+float64(by)/100))
			r.slower[i].percent = by
			if verdict := audit.Compare(oneRun(a), scaled, keys, &audit.Options{Alpha: alpha}).Keys[slices.Index(keys,
				r.method)].Verdict; verdict == audit.More {
				r.slower[i].found++
			}
			if audit.Compare(oneRun(a), scaled, []string{r.method},
				&audit.Options{Alpha: alpha}).Keys[0].Verdict == audit.More {
				r.slower[i].alone++
			}
		}
	}
	return r, nil
}

// decided reports whether there is a verdict on the whole or on a method.
func decided(r *audit.Result) bool {
	differs := func(d audit.Difference) bool { return d.Verdict == audit.More || d.Verdict == audit.Less }
	return differs(r.Whole) || slices.ContainsFunc(r.Keys, differs)
}

// made are windows in which a method costs that many times as much.
func made(windows []audit.Window[string], method string, times float64) (slower []audit.Window[string]) {
	for _, w := range windows {
		w.Keys = maps.Clone(w.Keys)
		cost := w.Keys[method]
		more := audit.Cost{Amount: cost.Amount * (times - 1), Samples: cost.Samples * (times - 1)}
		w.Keys[method], w.Total = cost.Plus(more), w.Total.Plus(more)
		slower = append(slower, w)
	}
	return slower
}
