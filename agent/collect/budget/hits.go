package budget

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// An Allowance is the maximum cost of a probe's hits.
type Allowance struct {
	Share float64 // part of the processes' CPU time: 0.01 is 1%
	Part  float64 // the part of that for one of several probes; 0: all
	// CPUs that the probes may always take, however little the processes use, before it is shared;
	// 0: none
	Least float64
	// Slices is N if the probe is attached in one of N slices of time: in that one it may take the
	// allowance of all of them. 0 and 1: it is attached all the time.
	Slices int
}

// part is the share of the processes' CPU time that the probe may take.
func (b Allowance) part() float64 {
	if b.Part > 0 {
		return b.Share * b.Part
	}
	return b.Share
}

// CPUs is how many CPUs the probe may take on average, of so many that the processes use.
func (b Allowance) CPUs(cpus float64) float64 {
	all := max(b.Share*cpus, b.Least) // no number if Share is none
	if b.Part > 0 {
		return all * b.Part
	}
	return all
}

// whileThere is how many CPUs the probe may take while it is attached.
func (b Allowance) whileThere(cpus float64) float64 {
	return b.CPUs(cpus) * float64(max(b.Slices, 1))
}

// A Load is the measured load of one probe.
type Load struct {
	Probe string        // its name, for messages
	Hits  float64       // a second
	Count time.Duration // the cost of a hit without a record
	// Record is the cost of a hit with a record. Count and Record are 0 if not measured yet; then a
	// value is assumed that nearly all hits stay below.
	Record time.Duration
	CPUs   float64 // CPU time a second that the processes use; 0 if unknown: then one CPU is assumed
}

// unknownRecord is the assumed cost of a hit with a record before it was measured: one of a deep
// stack, all frames.
const unknownRecord = 10 * time.Microsecond

// maxEvery is the lowest sampling rate of hits; beyond it too few of a second's hits would be left.
const maxEvery = 1 << 20

// maxCounting is the part of the budget for hits without a record. If they took more, few records
// would be left, each with a very large weight. With such frequent hits, a probe records more if it
// is attached for part of the time.
const maxCounting = 0.5

// A TooHotError says that hits without a record alone take more than half of the budget. It is the
// only error of Every.
type TooHotError struct {
	Load      Load
	Allowance Allowance
}

// Error returns the figures and a remedy.
func (e *TooHotError) Error() string {
	l := e.Load
	return fmt.Sprintf("probe %s is hit %s times a second; counting these hits, at %s us each, takes %s of a CPU, "+
		"more than half of the budget of %s: choose a probe with fewer hits, or --budget above %s", l.Probe,
		thousands(l.Hits),
		significant(l.Count.Seconds()*1e6), percent(l.counting()), e.Allowance.describe(l.CPUs),
		percent(l.counting()/maxCounting*e.Allowance.Share/e.Allowance.part()/l.CPUs))
}

// describe returns the allowance of the probe as text if the processes use that many CPUs.
func (b Allowance) describe(cpus float64) string {
	if b.Share*cpus < b.Least {
		return percent(b.CPUs(cpus)) + " of a CPU"
	}
	return fmt.Sprintf("%s of the %s CPUs that the processes use", percent(b.part()), significant(cpus))
}

// counting is the part of a CPU that hits take without any records.
func (l *Load) counting() float64 { return l.Hits * l.Count.Seconds() }

// Every returns N >= 1: one hit in N may emit a record. It is the least prime at which the measured
// cost stays within the budget; a prime does not synchronize with a program's own loops. It is at
// most about twice the extra cost of a record over a hit without one. If that is not enough, it
// returns a *TooHotError.
func (b Allowance) Every(l Load) (int, error) {
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

// Passing is how many CPUs a probe needs that is hit so often a second, at count each, for its hits
// to be passed over while it is attached all the time. Hits that are passed over may take half of
// what the probe may.
func Passing(hits float64, count time.Duration) float64 { return hits * count.Seconds() / maxCounting }

// complete has usual figures stand for those that were not measured.
func (l *Load) complete() {
	if l.Count <= 0 {
		l.Count = unknownHit
	}
	if l.Record <= 0 {
		l.Record = unknownRecord
	}
	if !(l.CPUs > 0) {
		l.CPUs = 1
	}
}

// SlicesFor returns N if the probe may be attached in one of N slices of time, so that Every does
// not fail: 1 if it may be attached all the time. It is at most limit.
func (b Allowance) SlicesFor(l Load, limit int) int {
	l.complete()
	n := math.Ceil(l.counting() / (maxCounting * b.CPUs(l.CPUs)))
	if !(n < float64(limit)) {
		return limit
	}
	return max(int(n), 1)
}

// HitsAllowed returns how often the probe may be hit in a slice of that length, if half of its
// allowance there is for hits without a record.
func (b Allowance) HitsAllowed(l Load, slice time.Duration) float64 {
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

// thousands formats a large number for people: 220,000.
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

// significant formats a number with two significant digits, but with all digits before the point:
// 0.6, 13, 220.
func significant(v float64) string {
	if v >= 10 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 2, 64)
}

func percent(part float64) string { return significant(100*part) + "%" }
