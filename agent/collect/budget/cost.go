package budget

import (
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// A Cost is the CPU time that an engine took from the profiled processes since it began.
type Cost struct {
	Hits    uint64        // executions of the engine's probes, sampled or not
	HitTime time.Duration // process CPU time for one of them, as measured here; 0 if not known yet
	Arming  time.Duration // process CPU time for everything else: interruptions to arm and disarm

	// What the next burst will cost, as far as known; 0 if unknown or nothing.
	TickTime time.Duration // process CPU time for arming once, a part of Arming
	SkipTime time.Duration // process CPU time for a call that a burst passes over: HitTime if each of them hits a probe
}

// Burst is the CPU time of the process that one tick takes with all its samples.
func (c Cost) Burst(b profile.Burst) time.Duration {
	return c.TickTime + time.Duration(b.Samples)*(c.HitTime+time.Duration(b.Stride-1)*c.SkipTime)
}

// Time is the total CPU time that the engine took from processes.
func (c Cost) Time() time.Duration { return time.Duration(c.Hits)*c.HitTime + c.Arming }
