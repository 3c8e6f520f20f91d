// Package audit compares the cost of two versions of a program per unit of work, and says how sure
// that is.
//
//	result := audit.Compare(a, b, keys, nil)
//	if result.Whole.Verdict == audit.More { ... }
//
// It is arithmetic on numbers that the caller has read: of each window of each recording, how much
// work was done and what that cost, in total and by key (a method, a call, a context).
// docs/measurements/auditing.md explains the method, its assumptions, and has the table of how often its
// verdicts are wrong.
//
// The estimate of a side is the ratio of sums, cost over units. Its standard error is that of a
// block bootstrap over windows (Künsch 1989, circular as in Politis and Romano 1992), because
// samples of neighbouring windows depend on each other. With several processes on a side these are
// resampled instead, each with all of its windows (Davison and Hinkley 1997, section 3.8): two runs
// of one program differ by more than its windows do. Tails are those of Student's t, as a few
// thousand resamples cannot resolve the small p-values that many keys need (Benjamini and Hochberg
// 1995). The Mann–Whitney U test has to agree.
//
// The U test is that of golang.org/x/perf/benchmath. Its other tools do not fit: they compare
// single measurements, which are independent and have no weights, by median or mean, where this
// package has ratios of dependent sums.
package audit

import (
	"cmp"
	"slices"
)

// A Cost is what one key cost in one window.
type Cost struct {
	Amount  float64 // amount in the unit of the values, such as nanoseconds; at least 0
	Samples float64 // how many samples the amount was estimated from; 0 if it is exact
}

// Plus is the sum of two costs.
func (c Cost) Plus(o Cost) Cost { return Cost{c.Amount + o.Amount, c.Samples + o.Samples} }

// A Window is a slice of the time of one recording.
type Window[K comparable] struct {
	Units float64 // work done: seconds, requests, calls. Windows without work are not counted
	Total Cost
	Keys  map[K]Cost // what has no entry cost nothing
}

// A Run is one process, or whatever else runs once, in consecutive windows.
type Run[K comparable] struct {
	Windows []Window[K]
}

// A Side is one of the two versions.
type Side[K comparable] struct {
	Runs []Run[K]
	// UnitsError is the relative standard error that the units of all windows share, if they are
	// estimated: 0.05 is 5 %.
	UnitsError float64
}

// A plan is how a side can be resampled: its windows in one row, and where its runs begin.
type plan struct {
	units      []float64 // units of each window
	start      []int     // start of each run, and the end of the last
	all        float64   // units of all windows
	unitsError float64
	least      int                // windows for an interval
	weights    map[int]*resamples // by block length; 0 resamples runs
}

func newPlan[K comparable](s Side[K], least int) *plan {
	p := &plan{unitsError: s.UnitsError, least: max(least, leastBlocks), weights: make(map[int]*resamples)}
	for _, run := range s.Runs {
		before := len(p.units)
		for _, w := range run.Windows {
			if w.Units > 0 {
				p.units = append(p.units, w.Units)
				p.all += w.Units
			}
		}
		if len(p.units) > before {
			p.start = append(p.start, before)
		}
	}
	p.start = append(p.start, len(p.units))
	return p
}

// runs is how many runs have windows.
func (p *plan) runs() int { return len(p.start) - 1 }

// windows is how many windows there are.
func (p *plan) windows() int { return len(p.units) }

// A series is what a key cost in the windows of one side that it cost something in.
type series struct {
	cells []cell
	all   Cost
}

type cell struct {
	window int // index of the window in the order of the plan
	amount float64
}

func (s *series) add(window int, c Cost) {
	if c.Amount == 0 && c.Samples == 0 {
		return
	}
	s.cells = append(s.cells, cell{window, c.Amount})
	s.all = s.all.Plus(c)
}

// seriesOf returns the series of the whole and of each wanted key.
func seriesOf[K comparable](s Side[K], keys []K) (whole series, each []series) {
	index := make(map[K]int, len(keys))
	for i, k := range keys {
		index[k] = i
	}
	each = make([]series, len(keys))
	n := 0
	for _, run := range s.Runs {
		for _, w := range run.Windows {
			if !(w.Units > 0) {
				continue
			}
			whole.add(n, w.Total)
			for k, c := range w.Keys {
				if i, wanted := index[k]; wanted {
					each[i].add(n, c)
				}
			}
			n++
		}
	}
	return whole, each
}

// Largest sorts keys by their share of both sides, the largest first, and keeps the first most of
// those with at least that share.
func Largest[K any](keys []K, share func(K) float64, least float64, most int) []K {
	keys = slices.DeleteFunc(keys, func(k K) bool { return share(k) < least })
	slices.SortStableFunc(keys, func(a, b K) int { return cmp.Compare(share(b), share(a)) })
	return keys[:min(len(keys), most)]
}
