// Package budget keeps sampling within a share of the CPU time of the processes that are sampled. A Controller says how much
// a call engine may sample; an Allowance, of how many hits of a probe one may be recorded; a Bucket, when something that costs
// much at once may happen. Times is the meter of the CPU time.
//
//	c := budget.New(budget.Limits{Share: 0.01})
//	for range time.Tick(time.Second) {
//		err := engine.Tune(c.Next(budget.Usage{Guests: cpuTime, Cost: engine.Cost()}))
//	}
//
// It does no sampling and no measuring itself.
//
// # Meters
//
// CPU time of processes is measured in two ways. Events use the kernel's clocks (Times): rates are set every second and
// checked 50 times a second, which a few samples cannot resolve, and a recording of events alone has no samples. Call engines
// use samples times their period: the samples are there anyway, a guest may be any process of the machine, each of which would
// cost a system call, and what a process used before its end counts, too. Samples of a second are rough but unbiased, and the
// budgets of engines are kept over the whole recording. Monitor enters are watched in one thread at a time, which is drawn by
// what it ran. So package watch reads the clocks of threads, and their sum fills the Bucket.
//
// # Solvers
//
// All solve hits x cost <= share x CPU time. They differ in what is given. Probes are hit as often as the program passes them:
// Allowance.Every solves for the part of the hits that may be recorded, or SlicesFor for the part of the time in which the probe
// is there. Call engines choose how many hits there are: fit solves for ticks, stride and samples, and of all solutions takes the
// one that shows most. The engine hotspot and monitor enters choose what to watch next, at a cost that is known only at the end of
// a watch. They take the most that it may cost from a Bucket, and give back what was not spent.
package budget

import (
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/calls"
	"github.com/vmprof-agent/vmprof-agent/agent/profile"
)

// MaxHz is how many ticks a second of CPU time there are at most, unless that is fixed. It is a prime below 100, so that
// ticks do not march in step with a guest's own timers. More of them would buy little: an interruption costs as much
// as ten to twenty hits.
const MaxHz = 97

// DefaultShare is the share of processes' CPU time that sampling calls, or recording events, may take unless users say otherwise.
const DefaultShare = 0.01

// Limits are what a Controller keeps to.
type Limits struct {
	Share float64      // of the guests' CPU time: 0.01 is 1%
	Fixed profile.Rate // fields that are not 0 are not changed; if none is 0, there is no budget
	MaxHz int          // ticks a second at most, unless that is fixed; 0 means MaxHz
}

// A Usage is what was used since the engine began.
type Usage struct {
	Guests time.Duration // CPU time of the guests that are sampled, the engine's cost included
	Cost   calls.Cost
}

// A Controller finds the rate for a budget. At each moment the cost so far stays within the budget's share of the CPU
// time so far, but for the burst of one tick on each CPU: the cost of a second of CPU time is predicted from what a
// burst costs if it gets all of its samples, and kept below that share. When the measured cost nears the line all the
// same, sampling slows down before it, and pauses at it until the guests have earned more. The zero value of a cost
// that is not measured yet is taken for a high one.
//
// What is fixed may cost more than that share, whatever the rest is. Then sampling goes on and off: as much as is fixed,
// with the smallest rest, for a second of which the guests have earned the cost before. It waits no longer than for what
// patience seconds earn, so that it begins soon. A second that costs more than those passes the line, and what is above
// it is earned before the next.
type Controller struct {
	limits Limits
	level  float64 // part of the share that is aimed at
	paused bool
	rate   profile.Rate  // the last one
	guests time.Duration // their CPU time when it was found
	over   bool          // it costs more than the share
}

const (
	firstLevel = 1. / 8 // until it is known what a hit costs
	fullLevel  = 0.9    // what is left covers errors of the prediction
	// margin is the last part of the budget, in which sampling slows down.
	margin = 0.05
	// worthwhile is by how much a rate must be better than the last one to be changed.
	worthwhile = 1.2
	// patience is for how many seconds sampling is put off at most, unless the line was passed.
	patience = 3
	// unknownHit is what a hit is believed to cost before it was measured: more than nearly all do.
	unknownHit = 2 * time.Microsecond
)

// New returns a controller that starts low.
func New(l Limits) *Controller { return &Controller{limits: l, level: firstLevel} }

// Next returns how much is to be sampled from now on; a rate without Hz means that sampling pauses. It is to be asked
// about once a second.
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
		least = minSamples // what a hit costs is measured between two of them
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

// Exceeds reports whether the budget has no room for what is fixed, so that the last rate is one of sampling that goes on
// and off.
func (c *Controller) Exceeds() bool { return c.over }

// turn returns r if it is time for a second of it, else a pause. How much CPU time guests will use in that second is
// taken from the last one.
func (c *Controller) turn(r profile.Rate, cost calls.Cost, guests time.Duration) profile.Rate {
	share := perSecond(cost, r) / float64(time.Second)
	left := c.limits.Share*float64(guests) - float64(cost.Time())
	ahead := min(share, patience*c.limits.Share) * float64(guests-c.guests)
	if left < ahead || guests == 0 && share > c.limits.Share {
		return profile.Rate{}
	}
	return r
}

// room is the part of its level that sampling may go on at, from 1 far below the line to 0 at it.
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
func (c *Controller) choose(cost calls.Cost, share float64) profile.Rate {
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

// perSecond is what a rate costs a second of CPU time, in ns.
func perSecond(cost calls.Cost, r profile.Rate) float64 {
	return float64(r.Hz) * float64(cost.Burst(r.Burst))
}
