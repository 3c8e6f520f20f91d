package probesite

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// A Budget is what probes may cost.
type Budget struct {
	Share float64 // of the guests' CPU time: 0.01 is 1%, as in agent/budget
	Part  float64 // of that, what one probe may take where several share it; 0: all
	Least float64 // CPUs that the probes may take however little the guests use, before it is shared; 0: none
	// Slices is how many slices of time there are of which the probe is there in one: in that one it may take what all
	// of them may. 0 and 1: it is there all the time.
	Slices int
}

// part is the share of the guests' CPU time that the probe may take.
func (b Budget) part() float64 {
	if b.Part > 0 {
		return b.Share * b.Part
	}
	return b.Share
}

// allowed is how many CPUs the probe may take on average, of so many that the guests use.
func (b Budget) allowed(cpus float64) float64 {
	all := max(b.Share*cpus, b.Least) // no number if Share is none
	if b.Part > 0 {
		return all * b.Part
	}
	return all
}

// whileThere is how many CPUs the probe may take while it is there.
func (b Budget) whileThere(cpus float64) float64 { return b.allowed(cpus) * float64(max(b.Slices, 1)) }

// A Load is what was measured of one probe.
type Load struct {
	Probe string        // its name, for messages
	Hits  float64       // a second
	Count time.Duration // what a hit takes from the guest that is passed over
	// Record is what a hit takes that emits a record. Count and Record are 0 if they are not measured yet; what nearly all
	// hits stay below is taken then.
	Record time.Duration
	CPUs   float64 // CPU time a second that the guests use; 0 if it is not known: one CPU is taken then
}

// What a hit is believed to cost before it was measured. The first is what the controller of calls begins with.
const (
	unknownCount  = 2 * time.Microsecond
	unknownRecord = 10 * time.Microsecond // of a deep stack, all frames
)

// maxEvery is the thinnest that hits are sampled; beyond it too few of a second's hits would be left to say anything.
const maxEvery = 1 << 20

// maxCounting is the part of the budget that may go for hits that are passed over. With the budget's whole rest the records
// left would be few, and each stand for so many that a profile is of the luck of some: where hits are so frequent, more are
// told by a probe that is there for part of the time.
const maxCounting = 0.5

// A TooHotError says that of the hits of a probe so many had to be passed over that this alone takes half of the budget. It
// is the only cause for which Every refuses.
type TooHotError struct {
	Load   Load
	Budget Budget
}

// Error gives the figures and what can be done.
func (e *TooHotError) Error() string {
	l := e.Load
	return fmt.Sprintf("probe %s is hit %s times a second; at %s us a hit that is %s of a CPU before anything is recorded, "+
		"budget %s: choose a rarer probe, or raise the budget above %s", l.Probe, thousands(l.Hits),
		significant(l.Count.Seconds()*1e6), percent(l.counting()), e.Budget.of(l.CPUs),
		percent(l.counting()/maxCounting*e.Budget.Share/e.Budget.part()/l.CPUs))
}

// of says what the probe may take if the guests use so many CPUs.
func (b Budget) of(cpus float64) string {
	if b.Share*cpus < b.Least {
		return percent(b.allowed(cpus)) + " of a CPU"
	}
	return fmt.Sprintf("%s of %s CPUs", percent(b.part()), significant(cpus))
}

// counting is the part of a CPU that it takes to pass all hits over.
func (l *Load) counting() float64 { return l.Hits * l.Count.Seconds() }

// Every returns N >= 1: every Nth hit may emit a record. It is the least at which the measured cost stays within the
// budget, made a prime, so that it does not march in step with a program's own loops, and no more than about twice what a
// record costs over what passing over does. Where that is not enough it returns a *TooHotError.
func (b Budget) Every(l Load) (int, error) {
	l.complete()
	if !(l.Hits > 0) {
		return 1, nil
	}
	allowed := b.whileThere(l.CPUs)
	left := allowed - l.counting()
	extra := l.Hits * max(0, (l.Record-l.Count).Seconds()) // CPUs, if every hit has a record
	if extra <= left {
		return 1, nil
	}
	if !(l.counting() <= maxCounting*allowed && extra <= left*maxEvery) {
		return 0, &TooHotError{l, b}
	}
	return prime(int(math.Ceil(extra / left))), nil
}

// complete has usual figures stand for those that were not measured.
func (l *Load) complete() {
	if l.Count <= 0 {
		l.Count = unknownCount
	}
	if l.Record <= 0 {
		l.Record = unknownRecord
	}
	if !(l.CPUs > 0) {
		l.CPUs = 1
	}
}

// SlicesFor returns of how many slices of time the probe may be there in one, so that Every does not refuse: 1 if it may be
// there all the time. It is at most limit.
func (b Budget) SlicesFor(l Load, limit int) int {
	l.complete()
	n := math.Ceil(l.counting() / (maxCounting * b.allowed(l.CPUs)))
	if !(n < float64(limit)) {
		return limit
	}
	return max(int(n), 1)
}

// HitsAllowed returns how often the probe may be hit in a slice of that length, if half of what it may take then is for
// hits that are passed over.
func (b Budget) HitsAllowed(l Load, slice time.Duration) float64 {
	l.complete()
	return maxCounting * b.whileThere(l.CPUs) * slice.Seconds() / l.Count.Seconds()
}

// prime returns the least prime that is n or more, for n from 2 to a little above maxEvery.
func prime(n int) int {
	for ; ; n++ {
		composite := false
		for d := 2; d*d <= n && !composite; d++ {
			composite = n%d == 0
		}
		if !composite {
			return n
		}
	}
}

// thousands writes a number as people read large ones: 220,000.
func thousands(v float64) string {
	digits := strconv.FormatFloat(math.Round(v), 'f', 0, 64)
	var out strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			out.WriteByte(',')
		}
		out.WriteRune(d)
	}
	return out.String()
}

// significant writes a number with two digits that count, and no fewer than it has before the point: 0.6, 13, 220.
func significant(v float64) string {
	if v >= 10 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 2, 64)
}

func percent(part float64) string { return significant(100*part) + "%" }
