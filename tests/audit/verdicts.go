package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"

	"github.com/vmprof-agent/vmprof-agent/agent/view/audit"
	"github.com/vmprof-agent/vmprof-agent/agent/view/audit/audittest"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// alpha is that of the comparisons of whole programs and of keys.
const alpha = 0.01

// tooMany reports whether more of n verdicts are false than a probability of limit allows, by three
// standard errors.
func tooMany(wrong, n int, limit float64) bool {
	return float64(wrong) > limit*float64(n)+3*math.Sqrt(limit*(1-limit)*float64(n))
}

// percent writes a share.
func percent(part, all int) string {
	if all == 0 {
		return "-"
	}
	return strconv.FormatFloat(100*float64(part)/float64(all), 'f', 1, 64)
}

// A setup is a row of the table of verdicts.
type setup struct {
	load          audittest.Load
	runs, windows int
}

func setups() (list []setup) {
	for _, load := range audittest.Loads() {
		for _, windows := range []int{20, 60} {
			list = append(list, setup{load, 1, windows})
		}
	}
	noisy := audittest.Load{Name: "3 % between runs", Samples: 500, Cluster: 1, Runs: 0.03}
	for _, runs := range []int{1, 3, 10} {
		list = append(list, setup{noisy, runs, 20})
	}
	return list
}

// verdicts compares programs with themselves, and with versions that are slower by some percent.
func (m manner) verdicts() (outcome harness.Outcome) {
	slower := []float64{2, 5, 10}
	table := report.Table{Header: []string{"program", "processes a side", "windows", "interval without the truth, %",
		"false at 0 %, %", "false, least effect 0, %"}}
	for _, s := range slower {
		table.Header = append(table.Header, fmt.Sprintf("found at %.0f %%, %%", s))
	}
	for _, s := range setups() {
		random := rand.New(rand.NewPCG(2009, uint64(s.runs*1000+s.windows)))
		try := func(slow float64, least float64) audit.Difference {
			return audit.Compare(s.load.Side(random, s.runs, s.windows, 1),
				s.load.Side(random, s.runs, s.windows, slow), nil, &audit.Options{Alpha: alpha, Least: least}).Whole
		}
		var missed, wrong, strict int
		for range m.experiments {
			d := try(1, 0.01)
			if !(d.Low <= 0 && 0 <= d.High) {
				missed++
			}
			if d.Verdict == audit.More || d.Verdict == audit.Less {
				wrong++
			}
			if d := try(1, 1e-9); d.Verdict == audit.More || d.Verdict == audit.Less {
				strict++
			}
		}
		warned := s.runs == 1 && s.load.Runs > 0 // a single process does not show the variation between processes
		row := []string{s.load.Name, strconv.Itoa(s.runs), strconv.Itoa(s.windows), percent(missed, m.experiments),
			percent(wrong, m.experiments), percent(strict, m.experiments)}
		outcome.Failed = outcome.Failed || !warned && tooMany(wrong, m.experiments, alpha)
		for _, by := range slower {
			found := 0
			for range m.experiments / 4 {
				if try(1+by/100, 0.01).Verdict == audit.More {
					found++
				}
			}
			row = append(row, percent(found, m.experiments/4))
		}
		table.Add(row...)
	}
	outcome.Tables = []harness.Table{{Marker: "audit-verdicts", Table: table}}
	return outcome
}

// keys compares programs of many methods, of which none or some are slower.
func (m manner) keys() (outcome harness.Outcome) {
	const keys, windows = 200, 60
	names := make([]string, keys)
	for k := range names {
		names[k] = strconv.Itoa(k)
	}
	table := report.Table{Header: []string{"methods", "slower by 30 %", "comparisons with a false verdict, %",
		"false among verdicts, %", "found, %"}}
	for _, slower := range []int{0, 2, 20} {
		random := rand.New(rand.NewPCG(1995, uint64(slower)))
		experiments := m.experiments / 10
		var any, right, wrong int
		for range experiments {
			a, b := manyMethods(random, keys, windows, 0), manyMethods(random, keys, windows, slower)
			before := wrong
			for k, d := range audit.Compare(a, b, names, &audit.Options{Alpha: alpha}).Keys {
				switch {
				case d.Verdict == audit.More && k >= keys-slower:
					right++
				case d.Verdict == audit.More || d.Verdict == audit.Less:
					wrong++
				}
			}
			if wrong > before {
				any++
			}
		}
		table.Add(strconv.Itoa(keys), strconv.Itoa(slower), percent(any, experiments), percent(wrong, right+wrong),
			percent(right, slower*experiments))
		if slower == 0 {
			outcome.Failed = tooMany(any, experiments, alpha)
		} else {
			outcome.Failed = outcome.Failed || tooMany(wrong, right+wrong, alpha)
		}
	}
	outcome.Tables = []harness.Table{{Marker: "audit-keys", Table: table}}
	return outcome
}

// manyMethods is a recording of methods that have from 1 to 20 samples in a window; the last ones
// are slower by 30 %.
func manyMethods(random *rand.Rand, keys, windows, slower int) audit.Side[string] {
	var run audit.Run[string]
	for range windows {
		w := audit.Window[string]{Units: 1, Keys: make(map[string]audit.Cost, keys)}
		for k := range keys {
			mean := 1 + float64(k%20)
			if k >= keys-slower {
				mean *= 1.3
			}
			n := float64(audittest.Poisson(random, mean))
			cost := audit.Cost{Amount: 1e6 * n, Samples: n}
			w.Keys[strconv.Itoa(k)] = cost
			w.Total = w.Total.Plus(cost)
		}
		run.Windows = append(run.Windows, w)
	}
	return audit.Side[string]{Runs: []audit.Run[string]{run}}
}
