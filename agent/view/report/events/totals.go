package events

import (
	"bufio"
	"fmt"
	"math"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/layout"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/stacks"
)

// A statedSum is what the metadata of a profile says of the main value of events, all processes
// together.
type statedSum struct {
	sum, within float64       // within is half of the 95 % interval; +Inf if it is not known of each process
	observed    []string      // sentences on processes that were not observed all the time, or not in all events
	scaled      bool          // one of these sums was scaled up
	repeated    string        // why parts have no intervals: stored.Metadata.Repeated
	missed      time.Duration // the longest time before a process was observed
}

// statedSumOf reads the metadata; nil if it has no sums.
func statedSumOf(p *pprof.Profile) *statedSum {
	m, err := stored.MetadataOf(p)
	if err != nil || len(m.Totals) == 0 {
		return nil
	}
	s := &statedSum{observed: m.Observed(), repeated: m.Repeated()}
	together := 0.0 // processes share slices and losses: they may all have been busy in them
	for i := range m.Totals {
		t := &m.Totals[i]
		s.sum += t.Sum
		s.scaled = s.scaled || t.Scaled()
		if t.Missed >= stored.LeastMissed {
			s.missed = max(s.missed, t.Missed)
		}
		if t.Incomplete() {
			together += float64(t.Within)
		} else {
			s.within = math.Hypot(s.within, float64(t.Within)) // each has events of its own
		}
	}
	s.within = math.Hypot(s.within, together)
	return s
}

// widen multiplies the variance of every sample by one factor, so that the interval of the sum of
// all samples is at least as wide as the interval that the profile states. The stated interval also
// covers the choice of slices and lost events. Survey sampling calls the factor the design effect.
func (e *storedEvents) widen() {
	stated := statedSumOf(e.stacks.Profile)
	if stated == nil {
		return
	}
	chance := 0.0
	for sample, t := range e.all() {
		if e.kind != profile.Locks || stacks.Contended(sample) {
			chance += t.variance
		}
	}
	if chance > 0 {
		e.effect = max(1, stated.within/normal95*stated.within/normal95/chance)
	}
	e.stated = stated
}

// EffectOf returns the design effect of the events of a stored profile: what the variances that
// follow from numbers of events are multiplied by, at least 1. It is 1 if it is not known, and 0 if
// parts of the sum have no intervals.
func EffectOf(p *pprof.Profile, kind profile.EventKind) float64 {
	e, err := readEvents(p, kind)
	switch {
	case err != nil:
		return 1
	case !e.apportioned() || math.IsInf(e.effect, 0):
		return 0
	}
	return e.effect
}

// partly says that a part of the time was not observed, or that events were lost. The design effect
// is that of all samples together: a class that is allocated in bursts of its own, in few slices or
// in none, is much further off than that.
func (e *storedEvents) partly() bool { return e.stated != nil && e.stated.scaled }

// apportioned reports whether parts of the sum have intervals.
func (e *storedEvents) apportioned() bool {
	return !e.partly() && (e.stated == nil || e.stated.repeated == "")
}

// interval is half of the 95 % interval of the main value of all samples that count: the stated
// one, or what follows from the number of events if the profile states none or has been changed
// since.
func (e *storedEvents) interval(all tally) float64 {
	const rounded = 1e-3
	value := all.values[e.kind.Main()]
	if e.stated == nil || math.Abs(e.stated.sum-value) > rounded*value {
		return normal95 * math.Sqrt(all.variance)
	}
	return e.stated.within
}

// A Total is what the events of a stored profile add up to: the main value of their kind,
// without what stands apart.
type Total struct {
	Sum    float64
	Within float64 // half of the 95 % interval; 0 if it is exact, +Inf if there are too few events for an interval
	// Missed is how long a process ran before it was observed, if that is in its recording; the
	// longest of several.
	Missed time.Duration
}

// TotalOf returns what a stored profile says of the sum of its events. It fails if the profile has
// none of that kind.
func TotalOf(p *pprof.Profile, kind profile.EventKind) (Total, error) {
	e, err := readEvents(p, kind)
	if err != nil {
		return Total{}, err
	}
	var all tally
	for sample, t := range e.all() {
		if kind != profile.Locks || stacks.Contended(sample) {
			all.add(t)
		}
	}
	total := Total{Sum: all.values[kind.Main()], Within: e.interval(all)}
	if e.stated != nil {
		total.Missed = e.stated.missed
	}
	return total, nil
}

// about writes the interval of all samples in percent, if it is known. Without an interval the sum
// is exact, unless a process ran before it was observed.
func (e *storedEvents) about(all tally) string {
	half, value := e.interval(all), all.values[e.kind.Main()]
	if half == 0 && e.stated != nil && e.stated.missed > 0 {
		return fmt.Sprintf("without up to %v before observation began", e.stated.missed.Round(time.Second/10))
	}
	if half == 0 && e.kind == profile.Barriers {
		return "at least" // no queue was full, and what else was in it is unknown
	}
	if half == 0 {
		return "exact"
	}
	if math.IsInf(half, 1) {
		return stored.UnknownInterval
	}
	return halfWidth(100*half/value, "%")
}

// writeObserved writes what was not observed all the time, or in all events.
func (e *storedEvents) writeObserved(out *bufio.Writer, opts *layout.Options) {
	if e.stated == nil {
		return
	}
	for _, line := range e.stated.observed {
		layout.Fold(out, line, opts.Width)
	}
}
