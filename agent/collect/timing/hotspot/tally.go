package hotspot

import (
	"math"
	"time"
)

// A tally estimates how often something happens from looks at some of the time. In between, the
// rate is that of the looks before and after. How much the rate differs from one look to the next
// says how wrong that may be: calls come in bursts, so that counts alone would promise too much.
// The zero value is not ready: from and taken are when the time begins.
type tally struct {
	from  time.Duration // CLOCK_MONOTONIC: until when the sum is known
	taken time.Duration // CLOCK_MONOTONIC: since when it counts
	sum   Count         // its Error is not known before it is taken

	slowed float64 // calls that may be missing because looks slow the program
	unseen float64 // s²: the variance of the sum is so much of spread

	looks    int
	rate     float64       // calls a second of the last look
	hits     float64       // sum over all looks
	observed time.Duration // sum over all looks
	spread   float64       // variance of the rate from look to look
	squares  float64       // sum of the squared differences between one look and the next
}

// look adds the hits of the last part of the time until now. Without any part, nothing could happen
// since the last look. slowed is the part of the look that the breakpoints took from the program:
// without them it may have called so much more often.
func (t *tally) look(hits float64, now, observed time.Duration, slowed float64) {
	all := max(now-t.from, observed)
	t.from = now
	t.sum.Time += all
	if observed <= 0 {
		return
	}
	t.sum.Observed += observed
	rate := hits / observed.Seconds()
	between := rate
	if t.looks > 0 {
		between = (rate + t.rate) / 2
		t.squares += (rate - t.rate) * (rate - t.rate)
	}
	t.looks, t.rate, t.hits, t.observed = t.looks+1, rate, t.hits+hits, t.observed+observed
	// The differences of neighbours show the spread, which a trend hardly changes. Few looks may all
	// have met a burst, or none, so that one more is assumed, which differs by as much as the rate
	// itself. Calls at random have no smaller spread than that of their number.
	mean := t.hits / t.observed.Seconds()
	t.spread = max(max(hits, 1)/(observed.Seconds()*observed.Seconds()), (mean*mean+t.squares/2)/float64(t.looks))
	unseen := between * (all - observed).Seconds()
	t.sum.Calls += hits + unseen
	t.slowed += unseen * slowed
	// The look is one of those that fit into the time that it stands for.
	t.unseen += all.Seconds() * (all - observed).Seconds()
}

// take returns the sum of the time until then and begins anew. If nobody looked since the last
// take, there is none yet: the next look stands for this time as well, unless it is the last take,
// which goes on with the rate of the last look.
func (t *tally) take(then time.Duration, last bool) Count {
	if t.sum.Time <= 0 && !(last && t.looks > 0) {
		return Count{}
	}
	end := max(then, t.from)
	rest := (end - t.from).Seconds()
	sum := t.sum
	sum.Calls += t.rate * rest
	// As a whole it may differ as one look does from another.
	sum.Error = math.Sqrt((t.unseen+rest*rest)*t.spread) + t.slowed
	sum.Time = end - t.taken
	t.sum, t.slowed, t.unseen, t.from, t.taken = Count{}, 0, 0, end, end
	return sum
}
