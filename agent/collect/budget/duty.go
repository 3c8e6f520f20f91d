package budget

import "time"

// Bounds on the slices of a duty cycle. Attaching and detaching takes some 50 ms, which would
// dominate shorter slices.
const (
	LongestSlice  = time.Second
	ShortestSlice = 100 * time.Millisecond
	longestCycle  = 5 * time.Minute
	MaxSlices     = int(longestCycle / ShortestSlice)
)

// A Duty says when probes are attached that would be too expensive all the time: in one slice of
// each cycle, drawn at random. So every moment of the cycle has the same probability of being
// observed, whatever happens in it. Counts, multiplied by the inverse of that probability, are
// right on average (Horvitz and Thompson, 1952). The length of a cycle may depend on what was
// observed before it, but not on anything in it. The zero value is observed all the time.
type Duty struct {
	Slices int           // one in this many is observed; 0 or 1: probes are attached all the time
	Length time.Duration // length of a slice
	Begin  time.Duration // begin of the cycle; this and the next two are CLOCK_MONOTONIC
	From   time.Duration // the slice may begin
	To     time.Duration // the slice that is observed ends
	On     bool          // the slice is being observed
	Done   bool          // the slice has been observed
	Weight float64       // the weight of events now
	Limit  float64       // hits in the slice above which a draw decides whether it continues
}

// Always reports whether probes are attached all the time.
func (d *Duty) Always() bool { return d.Slices <= 1 }

// Cycle is the length of a cycle.
func (d *Duty) Cycle() time.Duration { return time.Duration(d.Slices) * d.Length }

// Start begins a cycle of that many slices, at least two. draw returns a number from 0 to n-1. The
// cycle lasts as long as within, or longer if slices cannot be that short, or shorter if they
// cannot be that long.
func (d *Duty) Start(now time.Duration, slices int, within time.Duration, draw func(n int) int) {
	slices = min(max(slices, 2), MaxSlices)
	length := min(max(within/time.Duration(slices), ShortestSlice), LongestSlice)
	*d = Duty{Slices: slices, Length: length, Begin: now, Weight: float64(slices)}
	d.From = now + time.Duration(draw(slices))*length
	d.To = d.From + length
}

// Open begins the slice. It is as long as planned, even if it begins late; probes may be hit up to
// limit times in it.
func (d *Duty) Open(now time.Duration, limit float64) {
	d.On, d.From, d.To, d.Limit = true, now, now+d.Length, limit
}

// GoesOn reports whether a slice with that many hits continues. Above the limit it continues with
// probability one half. Then later events have twice the weight, and the limit doubles. Always
// ending it would leave out what happens when probes are hit often.
func (d *Duty) GoesOn(hits float64, draw func(n int) int) bool {
	for hits > d.Limit {
		if draw(2) == 0 {
			return false
		}
		d.Weight *= 2
		d.Limit *= 2
	}
	return true
}

// Over reports whether the cycle has ended.
func (d *Duty) Over(now time.Duration) bool { return d.Done && now >= d.Begin+d.Cycle() }
