package main

import (
	"fmt"
	"math"
	"slices"

	"golang.org/x/perf/benchmath"
)

// confidence is that of every interval that is printed.
const confidence = 0.95

// A ratio is the median of ratios, or other figures, that were measured one after the other, with its confidence interval.
// No distribution is assumed: on a shared machine there are always some that are far off.
type ratio struct {
	median, low, high float64
}

func ratioOf(values []float64) ratio {
	if len(values) == 0 {
		return ratio{math.NaN(), math.NaN(), math.NaN()}
	}
	sample := benchmath.NewSample(slices.Clone(values), &benchmath.DefaultThresholds) // it sorts them
	summary := benchmath.AssumeNothing.Summary(sample, confidence)
	return ratio{summary.Center, summary.Lo, summary.Hi}
}

// String shows three decimals: the third one is noise on most machines, and shows how much.
func (r ratio) String() string {
	if math.IsInf(r.low, 0) || math.IsInf(r.high, 0) {
		return fmt.Sprintf("%.3f [?]", r.median) // too few for an interval
	}
	return fmt.Sprintf("%.3f [%.3f-%.3f]", r.median, r.low, r.high)
}

// whole shows whole numbers, with their spread.
func (r ratio) whole() string {
	if math.IsInf(r.low, 0) || math.IsInf(r.high, 0) {
		return fmt.Sprintf("%.0f [?]", r.median) // too few for an interval
	}
	return fmt.Sprintf("%.0f [%.0f-%.0f]", r.median, r.low, r.high)
}

// middle shows the median alone.
func (r ratio) middle() string { return fmt.Sprintf("%.0f", r.median) }

// atMost says how a ratio compares with the most that it is meant to be: its whole interval may be below or above, or
// the measurement cannot tell.
func (r ratio) atMost(aim float64) string {
	switch {
	case math.IsNaN(r.median):
		return "not measured"
	case r.median <= aim:
		return "ok"
	case r.low <= aim:
		return "within noise"
	}
	return "MISSED"
}
