package budget

import "time"

// Bounds on the slices of a duty cycle. To attach and detach takes some 50 ms, so that shorter slices would hold little else.
const (
	LongestSlice  = time.Second
	ShortestSlice = 100 * time.Millisecond
	longestCycle  = 5 * time.Minute
	MaxSlices     = int(longestCycle / ShortestSlice)
)

// A Duty says when probes are attached that would cost too much if they were there all the time: in one slice of each cycle,
// which is drawn. So the chance to be observed is the same for every moment of the cycle, whatever happens in it, and what
// is seen, multiplied by the inverse of that chance, is right on average (Horvitz and Thompson, 1952). How long a cycle is may
// depend on what was seen before it, and on nothing that happens in it. The zero value is observed all the time.
type Duty struct {
	Slices int           // one of so many is observed; 0 or 1: probes are attached all the time
	Length time.Duration // of a slice
	Begin  time.Duration // of the cycle; this and the next two are CLOCK_MONOTONIC
	From   time.Duration // the slice may begin
	To     time.Duration // the slice that is observed ends
	On     bool          // the slice is being observed
	Done   bool          // it was
	Weight float64       // what is seen now stands for so many
	Limit  float64       // how often probes may be hit in the slice before it is drawn whether it goes on
}

// Always reports whether probes are attached all the time.
func (d *Duty) Always() bool { return d.Slices <= 1 }

// Cycle is how long a cycle is.
func (d *Duty) Cycle() time.Duration { return time.Duration(d.Slices) * d.Length }

// Start begins a cycle of so many slices, at least two. draw returns a number from 0 to n-1. The cycle lasts as long as within,
// or longer if slices cannot be that short, or shorter if they cannot be that long.
func (d *Duty) Start(now time.Duration, slices int, within time.Duration, draw func(n int) int) {
	slices = min(max(slices, 2), MaxSlices)
	length := min(max(within/time.Duration(slices), ShortestSlice), LongestSlice)
	*d = Duty{Slices: slices, Length: length, Begin: now, Weight: float64(slices)}
	d.From = now + time.Duration(draw(slices))*length
	d.To = d.From + length
}

// Open begins the slice. It is as long as planned, even if it begins late; probes may be hit up to limit times in it.
func (d *Duty) Open(now time.Duration, limit float64) {
	d.On, d.From, d.To, d.Limit = true, now, now+d.Length, limit
}

// GoesOn reports whether a slice goes on whose probes were hit so often. Above the limit it goes on with a chance of one half:
// then all that follows stands for twice as many, and the limit doubles. To end it for certain would leave out what happens
// when probes are hit often.
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
