package profile

import (
	"math"
	"time"
)

// A Coverage says in how much of the time, and of the events, a sum was observed, and how far off
// the sum may be. Events are observed part of the time if their probes would cost too much
// otherwise. Values are scaled up to all of the time and all events.
type Coverage struct {
	Time     time.Duration // requested observation time
	Observed time.Duration // observed part of Time; all of it if only attaching probes took a moment
	Slices   int           // number of slices of time in Observed
	Missed   time.Duration // time before the probes were attached, not in Time; sums do not include it
	Lost     float64       // share of lost events, all kinds together, in the worst window; 0 to 1

	// Errors of the sum of the main value, without rows that stand apart.
	Events uint64  // number of observed events in the sum
	Drawn  float64 // variance due to recording one event in N
	Cut    float64 // variance due to the window's ends
	Chosen float64 // half of the 95 % interval due to the choice of slices; +Inf if there are too few slices
	Bias   float64 // bound of systematic errors, the same in all windows: losses, and what probes slow down
}

// Count records that the sum was not estimated, but counted by what was observed itself, but for an
// error of skew.
func (c *Coverage) Count(skew float64) { c.Drawn, c.Cut, c.Chosen, c.Bias = 0, 0, 0, skew }

// Add adds the coverage of another window, or of another part of the same events.
func (c *Coverage) Add(o *Coverage) {
	c.Time += o.Time
	c.Observed += o.Observed
	c.Missed += o.Missed
	c.Slices += o.Slices
	c.Lost = max(c.Lost, o.Lost)
	c.Events += o.Events
	c.Drawn += o.Drawn
	c.Cut += o.Cut
	c.Chosen = math.Hypot(c.Chosen, o.Chosen) // windows vary independently
	c.Bias += o.Bias
}

// Within is half of the 95 % interval of the sum: 0 if the sum is exact, +Inf if there are too few
// slices to estimate it.
func (c *Coverage) Within() float64 {
	const normal95 = 1.96
	drawn := 0.0
	if c.Drawn > 0 {
		drawn = StudentT(max(int(c.Events)-1, 1)) * math.Sqrt(c.Drawn)
	}
	return math.Hypot(c.Chosen, math.Hypot(drawn, normal95*math.Sqrt(c.Cut))) + c.Bias
}

// Partial reports whether a part of the time was not observed.
func (c *Coverage) Partial() bool { return c != nil && c.Observed < c.Time }

// Share is the observed part of the time, 0 to 1.
func (c *Coverage) Share() float64 {
	if c == nil || c.Time <= 0 {
		return 1
	}
	return min(c.Observed.Seconds()/c.Time.Seconds(), 1)
}

// StudentT returns the two-sided 95 % quantile of Student's t distribution, +Inf if freedom
// (degrees) is less than 1. From four degrees on it uses the Cornish–Fisher expansion, which is
// within 0.1 %.
func StudentT(freedom int) float64 {
	switch few := [...]float64{math.Inf(1), 12.706, 4.303, 3.182}; {
	case freedom < 0:
		return math.Inf(1)
	case freedom < len(few):
		return few[freedom]
	}
	const z = 1.959964
	n := float64(freedom)
	return z + (z*z*z+z)/(4*n) + (5*math.Pow(z, 5)+16*math.Pow(z, 3)+3*z)/(96*n*n) +
		(3*math.Pow(z, 7)+19*math.Pow(z, 5)+17*math.Pow(z, 3)-15*z)/(384*n*n*n)
}
