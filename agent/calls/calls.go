// Package calls is about how often calls are made. A timer shows where time goes; a call that is short and frequent
// hides from it (Arnold & Grove, "Collecting and Exploiting High-Accuracy Call Graph Profiles in Virtual Machines",
// CGO 2005, figure 1). Engines sample calls instead, each for the guests that it understands and by the means that
// the machine has; this package is what they have in common. Each engine is a package below this one.
package calls

import (
	"fmt"
	"math"
	"time"

	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
)

// A Burst is what one tick asks of the thread that it finds running: Samples calls, Stride apart, the first after a
// random skip in [1..Stride] (Arnold & Grove, section 4, figure 3). The zero value is no burst.
type Burst struct {
	Stride  int // calls from one sample to the next, at least 1
	Samples int // calls to record a tick, at least 1
}

// A Rate is how much an engine is to sample.
type Rate struct {
	Hz int // ticks a second of CPU time, per CPU
	Burst
}

// String is the rate for people: "7x32 at 100 Hz".
func (r Rate) String() string { return fmt.Sprintf("%dx%d at %d Hz", r.Stride, r.Samples, r.Hz) }

// A Basis says how the weight of an edge came about.
type Basis uint8

const (
	// Sampled: calls that were seen. The weight is their number, out of an unknown total; or, for bursts that are long
	// enough, how many calls they stand for by the rate of calls in their burst.
	Sampled Basis = iota
	// Counted: every call was seen, or the guest's own counters say so.
	Counted
	// Estimated: from the time spent in callees and the guest's own counters; the weight is calls a second times
	// the length of the window.
	Estimated
	// Inferred: the call was compiled away. The weight follows from what was compiled into the caller.
	Inferred
	// Unmeasured: the call was seen in stacks, or is in the code, and next to nothing is known of how often it is made. The
	// weight is the least that it may be.
	Unmeasured
)

// String is the basis as it stands in labels.
func (b Basis) String() string {
	return [...]string{"sampled", "counted", "estimated", "inferred", "unmeasured"}[min(b, Unmeasured)]
}

// An Interval holds the true number of calls in 95 of 100 cases.
type Interval struct{ Low, High float64 }

// Add adds the interval of other calls, as if both were wrong in the same direction.
func (i Interval) Add(o Interval) Interval { return Interval{i.Low + o.Low, i.High + o.High} }

// Factor is by how much the true number may be lower or higher than the interval's middle, at least 1.
func (i Interval) Factor() float64 {
	if !(i.Low > 0) || !(i.High > i.Low) {
		return 1
	}
	return math.Sqrt(i.High / i.Low)
}

// FactorOf is by how much the true number may be lower or higher than n, which is in the interval, at least 1. Of the interval's
// low end it is the Factor: there is nothing below.
func (i Interval) FactorOf(n float64) float64 {
	if n <= i.Low || !(i.Low > 0) {
		return i.Factor()
	}
	return max(i.High/n, n/i.Low, 1)
}

// A Site is where in its caller a call stands. Unknown fields are 0 and -1.
type Site struct {
	Line   int32 // in the caller's source file, 0 if unknown
	Offset int32 // bytecode index, or for other guests the return address's distance from the caller's begin; -1 if unknown
}

// A Graph is a dynamic call graph as profiles hold it. Callers and callees are methods: their Line and Address are 0.
type Graph = cct.Graph[symbolize.Symbol, Site]

// An Edge of a Graph.
type Edge = cct.Edge[symbolize.Symbol, Site]

// An Engine samples calls of guests from its making until it is closed. What it samples arrives in the agent's event
// stream.
type Engine interface {
	// Name is what --engine chooses it by.
	Name() string
	// Tune changes how much is sampled, from the next tick on.
	Tune(Rate) error
	// Cost is what sampling has cost the guests so far.
	Cost() Cost
	// Close disarms everything and takes the engine out of the kernel and out of the guests.
	Close() error
}

// A Cost is what an engine took from guests since it began.
type Cost struct {
	Hits    uint64        // executions of the engine's probes, sampled or not
	HitTime time.Duration // of guest CPU for one of them, as measured here; 0 if that is not known yet
	Arming  time.Duration // of guest CPU for everything else: interruptions to arm and disarm

	// What the next burst will cost, as far as that is known; 0 where it is not, or is nothing.
	TickTime time.Duration // of guest CPU for arming once, a part of Arming
	SkipTime time.Duration // for a call that a burst passes over: HitTime where each of them runs into a probe
}

// Burst is the guest CPU time that one tick takes with all its samples.
func (c Cost) Burst(b Burst) time.Duration {
	return c.TickTime + time.Duration(b.Samples)*(c.HitTime+time.Duration(b.Stride-1)*c.SkipTime)
}

// Time is the guest CPU time that all of it took.
func (c Cost) Time() time.Duration { return time.Duration(c.Hits)*c.HitTime + c.Arming }
