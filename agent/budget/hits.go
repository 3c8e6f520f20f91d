package budget

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// An Allowance is what the hits of a probe may cost.
type Allowance struct {
	Share float64 // of the processes' CPU time: 0.01 is 1%
	Part  float64 // of that, what one probe may take where several share it; 0: all
	Least float64 // CPUs that the probes may take however little the processes use, before it is shared; 0: none
	// Slices is of how many slices of time the probe is attached in one: in that one it may take what all of them may. 0 and
	// 1: it is attached all the time.
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

// A Load is what was measured of one probe.
type Load struct {
	Probe string        // its name, for messages
	Hits  float64       // a second
	Count time.Duration // the cost of a hit that is passed over
	// Record is the cost of a hit that emits a record. Count and Record are 0 if they are not measured yet; then a value is
	// assumed that nearly all hits stay below.
	Record time.Duration
	CPUs   float64 // CPU time a second that the processes use; 0 if it is not known: then one CPU is assumed
}

// unknownRecord is what a hit is believed to cost that emits a record, before it was measured: one of a deep stack, all frames.
const unknownRecord = 10 * time.Microsecond

// maxEvery is the thinnest that hits are sampled; beyond it too few of a second's hits would be left to say anything.
const maxEvery = 1 << 20

// maxCounting is the part of the budget that hits may take that are passed over. If they took more, few records would be left,
// and each would stand for very many hits. Where hits are so frequent, a probe records more if it is attached for part of the time.
const maxCounting = 0.5

// A TooHotError says that to pass over the hits of a probe alone takes more than half of the budget. It is the only error of
// Every.
type TooHotError struct {
	Load      Load
	Allowance Allowance
}

// Error gives the figures and what can be done.
func (e *TooHotError) Error() string {
	l := e.Load
	return fmt.Sprintf("probe %s is hit %s times a second; at %s us a hit that uses %s of a CPU before anything is recorded, "+
		"budget %s: use a probe with fewer hits, or raise the budget above %s", l.Probe, thousands(l.Hits),
		significant(l.Count.Seconds()*1e6), percent(l.counting()), e.Allowance.of(l.CPUs),
		percent(l.counting()/maxCounting*e.Allowance.Share/e.Allowance.part()/l.CPUs))
}

// of says what the probe may take if the processes use so many CPUs.
func (b Allowance) of(cpus float64) string {
	if b.Share*cpus < b.Least {
		return percent(b.CPUs(cpus)) + " of a CPU"
	}
	return fmt.Sprintf("%s of %s CPUs", percent(b.part()), significant(cpus))
}

// counting is the part of a CPU that it takes to pass all hits over.
func (l *Load) counting() float64 { return l.Hits * l.Count.Seconds() }

// Every returns N >= 1: every Nth hit may emit a record. It is the least at which the measured cost stays within the
// budget, made a prime, so that it does not march in step with a program's own loops, and no more than about twice what a
// record costs over what passing over does. Where that is not enough it returns a *TooHotError.
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

// Passing is how many CPUs a probe needs that is hit so often a second, at count each, for its hits to be passed over while it
// is attached all the time. Hits that are passed over may take half of what the probe may.
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

// SlicesFor returns of how many slices of time the probe may be attached in one, so that Every does not refuse: 1 if it may be
// attached all the time. It is at most limit.
func (b Allowance) SlicesFor(l Load, limit int) int {
	l.complete()
	n := math.Ceil(l.counting() / (maxCounting * b.CPUs(l.CPUs)))
	if !(n < float64(limit)) {
		return limit
	}
	return max(int(n), 1)
}

// HitsAllowed returns how often the probe may be hit in a slice of that length, if half of what it may take then is for
// hits that are passed over.
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
