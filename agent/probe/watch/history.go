package watch

import (
	"cmp"
	"slices"
	"time"
)

// maxHistory bounds the readings of a group: an hour of one a second; then every other one is
// forgotten.
const maxHistory = 4096

// A reading is a group's CPU time until a moment, both in ns; the moment is of CLOCK_MONOTONIC.
type reading struct{ at, used time.Duration }

// A History is what a thread group ran: readings, oldest first.
type History []reading

// Add takes over that the group ran for so long since the last reading.
func (h *History) Add(now, did time.Duration) {
	if n := len(*h); n > 0 {
		did += (*h)[n-1].used
	}
	if len(*h) >= maxHistory {
		kept := (*h)[:0]
		for i, r := range *h {
			if i%2 == 0 {
				kept = append(kept, r)
			}
		}
		*h = kept
	}
	*h = append(*h, reading{now, did})
}

// at is the CPU time until a moment. Between two readings the group is taken to have run evenly,
// and outside of them as Between the first two or the last two.
func (h History) at(t time.Duration) time.Duration {
	if len(h) < 2 {
		return 0
	}
	i, _ := slices.BinarySearchFunc(h, t, func(r reading, t time.Duration) int { return cmp.Compare(r.at, t) })
	i = max(1, min(i, len(h)-1))
	a, b := h[i-1], h[i]
	if b.at <= a.at {
		return b.used
	}
	slope := float64(b.used-a.used) / float64(b.at-a.at)
	if i == 1 && len(h) > 2 && t < a.at { // the first reading has all that the threads ever did
		a, b = h[1], h[2]
		slope = float64(b.used-a.used) / float64(max(b.at-a.at, 1))
	}
	return max(0, a.used+time.Duration(slope*float64(t-a.at)))
}

// Between is the CPU time in a span.
func (h History) Between(from, to time.Duration) time.Duration { return max(0, h.at(to)-h.at(from)) }

// since is the CPU time since the group's first reading, which has all that its threads ever did.
func (h History) since() time.Duration {
	if len(h) == 0 {
		return 0
	}
	return h[len(h)-1].used - h[0].used
}
