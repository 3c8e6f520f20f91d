// Package budget keeps sampling within a share of the CPU time of the sampled processes. A
// Controller sets the rate of a call engine. An Allowance decides which fraction of a probe's hits
// may be recorded. A Bucket decides when an expensive operation may happen. Times measures the CPU
// time.
//
//	c := budget.New(budget.Limits{Share: 0.01})
//	for range time.Tick(time.Second) {
//		err := engine.Tune(c.Next(budget.Usage{Guests: cpuTime, Cost: engine.Cost()}))
//	}
//
// The package itself neither samples nor measures.
//
// # Meters
//
// CPU time of processes is measured in two ways. Events use the kernel's clocks (Times): rates are
// set every second and checked 50 times a second, which a few samples cannot resolve, and a
// recording of events alone has no samples. Call engines use samples times their period. The
// samples exist anyway; any process of the machine may be profiled, each of which would cost a
// system call; and the time of ended processes counts, too. Samples of a second are rough but
// unbiased, and the budgets of engines are kept over the whole recording. Uncontended lock
// acquisitions are watched in one thread at a time, which is drawn in proportion to its CPU time.
// So package watch reads the clocks of threads, and their sum fills the Bucket.
//
// # Solvers
//
// All solve hits x cost <= share x CPU time. They differ in what is given. Probes are hit as often
// as the program passes them: Allowance.Every solves for the fraction of hits that may be recorded,
// or SlicesFor for the fraction of time in which the probe is attached. Call engines choose how
// many hits there are: fit solves for ticks, stride and samples, and takes the solution with the
// most information. The engine hotspot and uncontended lock acquisitions choose what to watch next,
// at a cost that is known only at the end of a watch. They take its maximum cost from a Bucket, and
// return what was not spent.
package budget

import (
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// MaxHz is the maximum number of ticks per second of CPU time, unless that is fixed. It is a prime
// below 100, to avoid synchronizing with a process's own timers. More ticks would gain little: an
// interruption costs as much as ten to twenty hits.
const MaxHz = 97

// DefaultShare is the share of processes' CPU time that sampling calls, or recording events, may
// take unless users say otherwise.
const DefaultShare = 0.01

// Limits are the bounds for a Controller.
type Limits struct {
	Share float64      // part of the processes' CPU time: 0.01 is 1%
	Fixed profile.Rate // fields that are not 0 are fixed; if none is 0, there is no budget
	MaxHz int          // ticks a second at most, unless that is fixed; 0 means MaxHz
}

// A Usage is the CPU time used since the engine began.
type Usage struct {
	Guests time.Duration // CPU time of the sampled processes, including the engine's cost
	Cost   Cost
}

// A Controller finds the rate for a budget. At each moment the cost so far stays within the
// budget's share of the CPU time so far, except for the burst of one tick on each CPU. The cost of
// a second of CPU time is predicted from the cost of a burst with all of its samples, and kept
// below that share. If the measured cost still comes close to the limit, sampling slows down before
// it, and pauses at it until the processes have earned more. Costs that are not measured yet (0)
// are assumed to be high.
//
// Fixed fields may cost more than that share, whatever the others are. Then sampling is switched on
// and off: on with the fixed fields and the smallest others, for a second whose cost has been
// earned before. It waits at most for what patience seconds earn, so that it begins soon. A second
// that costs more exceeds the limit, and the excess is earned before the next one.
type Controller struct {
	limits Limits
	level  float64 // the aimed-at part of the share
	paused bool
	rate   profile.Rate  // the last one
	guests time.Duration // their CPU time when over was found
	over   bool          // it costs more than the share
}

const (
	firstLevel = 1. / 8 // until the cost of a hit is known
	fullLevel  = 0.9    // what is left covers errors of the prediction
	// margin is the last part of the budget, in which sampling slows down.
	margin = 0.05
	// worthwhile is the factor by which a rate must be better than the last one to be changed.
	worthwhile = 1.2
	// patience is for how many seconds sampling is put off at most, unless the limit was exceeded.
	patience = 3
	// unknownHit is the assumed cost of a hit before it was measured: more than nearly all hits
	// cost.
	unknownHit = 2 * time.Microsecond
)

// New returns a controller that starts with a low rate.
func New(l Limits) *Controller { return &Controller{limits: l, level: firstLevel} }

// Next returns the rate from now on; a rate without Hz pauses sampling. It should be called about
// once a second.
func (c *Controller) Next(u Usage) profile.Rate {
	if f := c.limits.Fixed; f.Hz > 0 && f.Stride > 0 && f.Samples > 0 {
		return f
	}
	cost, least := u.Cost, 1
	if cost.HitTime > 0 {
		c.level = min(2*c.level, fullLevel)
	} else {
		cost.HitTime = unknownHit
		if cost.SkipTime == 0 {
			cost.SkipTime = unknownHit // every call of a burst may be a hit
		}
		c.level = firstLevel
		least = minSamples // the cost of a hit is measured between two of them
	}
	share := c.limits.Share * c.level
	if c.over = fit(c.limits, cost, share).Hz == 0; c.over {
		c.rate = c.turn(smallest(c.limits.Fixed, cost, least), cost, u.Guests)
	} else {
		c.rate = c.choose(cost, share*c.room(u.Guests, cost.Time()))
	}
	c.guests = u.Guests
	return c.rate
}

// Exceeds reports whether the budget has no room for the fixed fields, so that sampling is switched
// on and off at the last rate.
func (c *Controller) Exceeds() bool { return c.over }

// turn returns r if it is time for a second of it, otherwise a pause. It assumes that processes use
// as much CPU time in that second as in the last one.
func (c *Controller) turn(r profile.Rate, cost Cost, guests time.Duration) profile.Rate {
	share := perSecond(cost, r) / float64(time.Second)
	left := c.limits.Share*float64(guests) - float64(cost.Time())
	ahead := min(share, patience*c.limits.Share) * float64(guests-c.guests)
	if left < ahead || guests == 0 && share > c.limits.Share {
		return profile.Rate{}
	}
	return r
}

// room is the fraction of its level at which sampling may continue, from 1 far below the limit to 0
// at it.
func (c *Controller) room(guests, spent time.Duration) float64 {
	line := c.limits.Share * float64(guests)
	left := line - float64(spent)
	switch {
	case guests == 0:
		return 1
	case left <= 0:
		c.paused = true
		return 0
	case c.paused && left < margin*line:
		return 0
	}
	c.paused = false
	return min(1, max(left/(2*margin*line), worthwhile-1))
}

// choose returns a rate that costs share of a CPU, or the last one if that is nearly as good.
func (c *Controller) choose(cost Cost, share float64) profile.Rate {
	r := fit(c.limits, cost, share)
	if r.Hz == 0 || c.rate.Hz == 0 {
		return r
	}
	now, next := perSecond(cost, c.rate), perSecond(cost, r)
	if limit := share * float64(time.Second); now <= limit && next < worthwhile*now {
		return c.rate
	}
	return r
}

// perSecond is the cost of a rate per second of CPU time, in ns.
func perSecond(cost Cost, r profile.Rate) float64 {
	return float64(r.Hz) * float64(cost.Burst(r.Burst))
}
