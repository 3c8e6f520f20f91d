package harness

import (
	"fmt"
	"math"
	"slices"

	"golang.org/x/perf/benchmath"
)

// confidence is that of every interval that is printed.
const confidence = 0.95

// A Ratio is the median of ratios, or other figures, that were measured one after the other, with
// its confidence interval. No distribution is assumed: on a shared machine there are always some
// that are far off.
type Ratio struct {
	Median, Low, High float64
}

// RatioOf returns the median of values, which is NaN of none.
func RatioOf(values []float64) Ratio {
	if len(values) == 0 {
		return Ratio{math.NaN(), math.NaN(), math.NaN()}
	}
	sample := benchmath.NewSample(slices.Clone(values), &benchmath.DefaultThresholds) // it sorts them
	summary := benchmath.AssumeNothing.Summary(sample, confidence)
	return Ratio{summary.Center, summary.Lo, summary.Hi}
}

// String shows three decimals: the third one is noise on most machines, and shows how much.
func (r Ratio) String() string { return r.format(3) }

// Whole shows whole numbers, with their spread.
func (r Ratio) Whole() string { return r.format(0) }

func (r Ratio) format(places int) string {
	if math.IsInf(r.Low, 0) || math.IsInf(r.High, 0) {
		return fmt.Sprintf("%.*f [?]", places, r.Median) // too few for an interval
	}
	return fmt.Sprintf("%.*f [%.*f-%.*f]", places, r.Median, places, r.Low, places, r.High)
}

// Middle shows the median alone.
func (r Ratio) Middle() string { return fmt.Sprintf("%.0f", r.Median) }

// AtMost says how a ratio compares with the most that it is meant to be: its whole interval may be
// below or above, or the measurement cannot tell.
func (r Ratio) AtMost(aim float64) string {
	switch {
	case math.IsNaN(r.Median):
		return "not measured"
	case r.Median <= aim:
		return "ok"
	case r.Low <= aim:
		return "within noise"
	}
	return "MISSED"
}
