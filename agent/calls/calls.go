// Package calls is about how often calls are made. A timer shows where time goes; a call that is short and frequent
// hides from it (Arnold & Grove, "Collecting and Exploiting High-Accuracy Call Graph Profiles in Virtual Machines",
// CGO 2005, figure 1). Engines sample calls instead, each for the guests that it understands and by the means that
// the machine has; this package is what they have in common. Each engine is a package below this one.
package calls

import (
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"
)

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
func (c Cost) Burst(b profile.Burst) time.Duration {
	return c.TickTime + time.Duration(b.Samples)*(c.HitTime+time.Duration(b.Stride-1)*c.SkipTime)
}

// Time is the guest CPU time that all of it took.
func (c Cost) Time() time.Duration { return time.Duration(c.Hits)*c.HitTime + c.Arming }
