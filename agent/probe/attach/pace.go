package attach

import (
	"time"

	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// MaxTickShare is the share of a CPU that samples may take. Where they take more, because stacks
// take long to walk, they are taken less often.
const MaxTickShare = 0.05

// A Pace is how far apart the ticks are, of all CPUs alike, so that each sample stands for the same
// CPU time. One goroutine may use it.
type Pace struct {
	base    time.Duration // as requested
	changes []change      // oldest first
	before  []bpf.TickCost
}

type change struct {
	at     time.Duration // CLOCK_MONOTONIC
	period time.Duration
}

const (
	// slowest bounds the period: with it, no walk takes too much. See also longestVaried.
	slowest = longestVaried
	// fewest samples of a CPU show what one costs.
	fewest     = 10
	maxChanges = 1024
)

// NewPace returns the pace of ticks that are requested to be so far apart.
func NewPace(base time.Duration) *Pace {
	return &Pace{base: base, changes: []change{{period: base}}}
}

// Period is how far apart ticks are now.
func (p *Pace) Period() time.Duration { return p.changes[len(p.changes)-1].period }

// Adjust takes what the samples of each CPU cost until now, and returns how far apart ticks are to
// be from now on, and whether that is a change. The period grows at once, and shrinks by a quarter
// at most. It is called once a second.
func (p *Pace) Adjust(now time.Duration, costs []bpf.TickCost) (period time.Duration, changed bool) {
	period = p.base
	if len(p.before) == len(costs) {
		for cpu, c := range costs {
			if n := c.Samples - p.before[cpu].Samples; n >= fewest {
				each := float64(c.Time-p.before[cpu].Time) / float64(n)
				period = max(period, time.Duration(each/MaxTickShare))
			}
		}
	}
	p.before = costs
	last := p.Period()
	period = max(min(period, max(slowest, p.base)), last-last/4, p.base)
	if period == last {
		return period, false
	}
	if len(p.changes) == maxChanges {
		p.changes = append(p.changes[:1], p.changes[2:]...)
	}
	p.changes = append(p.changes, change{now, period})
	return period, true
}

// Periods returns the mean period between two times of CLOCK_MONOTONIC, and the longest one.
func (p *Pace) Periods(began, ended time.Duration) (mean, longest time.Duration) {
	ticks, shortest := 0.0, time.Duration(0)
	for i, c := range p.changes {
		until := ended
		if i+1 < len(p.changes) {
			until = min(until, p.changes[i+1].at)
		}
		if from := max(c.at, began); from < until {
			if shortest == 0 || c.period < shortest {
				shortest = c.period
			}
			ticks += float64(until-from) / float64(c.period)
			longest = max(longest, c.period)
		}
	}
	switch {
	case ticks == 0:
		return p.Period(), p.Period()
	case shortest == longest:
		return longest, longest
	}
	return time.Duration(float64(ended-began) / ticks), longest
}
