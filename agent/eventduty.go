package agent

import (
	"time"
)

// Bounds on the slices of a duty cycle. To attach and detach takes some 50 ms, so that shorter slices would hold little else.
const (
	longestSlice  = time.Second
	shortestSlice = 100 * time.Millisecond
	usualCycle    = 5 * time.Second        // so long if slices can be chosen so: then each window of serve has two at least
	firstCycle    = 500 * time.Millisecond // so short as long as a plan is young: a short recording has some slices, too
	longestCycle  = 5 * time.Minute
	maxSlices     = int(longestCycle / shortestSlice)
)

// A dutyCycle says when a plan is observed whose probes would cost too much if they were there all the time: in one slice
// of each cycle, which is drawn. So the chance to be observed is the same for every moment of the cycle, whatever happens
// in it, and what is seen, multiplied by the inverse of that chance, is right on average (Horvitz and Thompson, 1952). How
// long a cycle is may depend on what was seen before it, and on nothing that happens in it.
type dutyCycle struct {
	slices int           // one of so many is observed; 0 or 1: the plan is observed all the time
	length time.Duration // of a slice
	begin  time.Duration // of the cycle; this and the next two are CLOCK_MONOTONIC
	from   time.Duration // the slice may begin
	to     time.Duration // the slice that is observed ends
	on     bool          // the slice is being observed
	done   bool          // it was
	weight float64       // what is seen now stands for so many
	// limit is how often probes may be hit in the slice before it is drawn whether it goes on.
	limit float64
}

// always says that the plan is observed all the time.
func (d *dutyCycle) always() bool { return d.slices <= 1 }

// cycle is how long a cycle is.
func (d *dutyCycle) cycle() time.Duration { return time.Duration(d.slices) * d.length }

// usualCycle is how long a cycle is to be that begins now: an eighth of the time that the plan is there, within bounds. So
// recordings have eight cycles or more unless slices are rare, and an agent that goes on seldom attaches and detaches.
func (p *attachedPlan) usualCycle(now time.Duration) time.Duration {
	return min(max((now-p.cover.bornAt())/8, firstCycle), usualCycle)
}

// start begins a cycle of so many slices, at least two. draw returns a number from 0 to n-1. The cycle is as long as usual,
// or at most within, if slices can be so short.
func (d *dutyCycle) start(now time.Duration, slices int, within time.Duration, draw func(n int) int) {
	slices = min(max(slices, 2), maxSlices)
	length := min(max(within/time.Duration(slices), shortestSlice), longestSlice)
	*d = dutyCycle{slices: slices, length: length, begin: now, weight: float64(slices)}
	d.from = now + time.Duration(draw(slices))*length
	d.to = d.from + length
}

// open begins the slice. It is as long as planned, even if it begins late; probes may be hit that often in it.
func (d *dutyCycle) open(now time.Duration, limit float64) {
	d.on, d.from, d.to, d.limit = true, now, now+d.length, limit
}

// goesOn says whether a slice goes on whose probes were hit so often. If that is more than the limit, it goes on with the
// chance of one half: then all that follows stands for twice as many, and the limit is twice as high. To end it for certain
// would leave out what happens when probes are hit often.
func (d *dutyCycle) goesOn(hits float64, draw func(n int) int) bool {
	for hits > d.limit {
		if draw(2) == 0 {
			return false
		}
		d.weight *= 2
		d.limit *= 2
	}
	return true
}

// over says that the cycle has ended.
func (d *dutyCycle) over(now time.Duration) bool { return d.done && now >= d.begin+d.cycle() }
