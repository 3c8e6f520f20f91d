package main

import (
	"fmt"
	"math"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// A figure compares one number that was recorded with the truth.
type figure struct {
	group     string // what it is one of: tables have the worst of each group
	what      string
	unit      string // of truth and measured: "", "ms", "%"
	truth     float64
	measured  float64
	tolerance float64 // in that unit
	aim       bool    // missing it is no error, but told
}

func (f figure) off() float64 { return math.Abs(f.measured - f.truth) }

func (f figure) ok() bool { return f.off() <= f.tolerance }

// used is how much of the tolerance the figure needs, 1 is all.
func (f figure) used() float64 {
	if f.off() == 0 {
		return 0
	}
	return f.off() / max(f.tolerance, 1e-9) // without any tolerance it has failed
}

// worst returns the figure of each group that needs most of its tolerance, in the order of the groups.
func worst(figures []figure) []figure {
	var worst []figure
	for _, f := range figures {
		i := slices.IndexFunc(worst, func(w figure) bool { return w.group == f.group })
		switch {
		case i < 0:
			worst = append(worst, f)
		case f.used() > worst[i].used():
			worst[i] = f
		}
	}
	return worst
}

// within returns what is a share of the truth, as a tolerance.
func within(share, truth float64) float64 { return share * math.Abs(truth) }

// cells are the figure in a table: what, truth, recorded, tolerance, verdict.
func (f figure) cells() []string {
	number := func(v float64) string {
		text := fmt.Sprintf("%.2f", v)
		if f.unit == "" {
			text = fmt.Sprintf("%.0f", v)
		} else {
			text += " " + f.unit
		}
		return text
	}
	what := f.group
	if f.what != "" {
		what += ": " + f.what
	}
	return []string{what, number(f.truth), number(f.measured), "±" + number(f.tolerance), report.Verdict(f.ok())}
}
