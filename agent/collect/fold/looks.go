package fold

import (
	"math"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// Lengths says where the length of a wait for a lock is from.
type Lengths uint8

// Of waits that are too many for their probes to be attached all the time, there are two estimates
// of how long they are. What slices saw is precise if most waits fit into one, and lacks the
// others. What looks saw lacks none, and is precise if many threads wait. CoveredParts.bySlices
// chooses when a window closes.
const (
	LengthsKnown  Lengths = iota // the wait was seen from its begin until its end, or until now
	LengthsLater                 // only its begin was seen: the length is counted as one of the following
	LengthsSliced                // the wait ended in the slice in which it had begun, and its length was counted then
	LengthsLooked                // what a Look stands for: Every is Moment
)

// ofRow is what distinguishes rows.
func (l Lengths) ofRow() Lengths {
	if l == LengthsLater {
		return LengthsKnown
	}
	return l
}

// monitorWait is EventLabels.What of waits for monitors.
const monitorWait = "block"

// normal95 is the two-sided 95 % quantile of the normal distribution.
const normal95 = 1.96

// A Look is what was seen at a moment that was drawn: how many threads waited. It stands for a time
// around the moment: its events are of Moment.
type Look struct {
	Monitor      bool          // they waited for monitors; otherwise for other locks
	Since, Until time.Duration // CLOCK_MONOTONIC: the time for which it stands
	Waiting      float64       // threads, estimated from those that were drawn
	Weight       float64       // how many threads one that was drawn stands for; at least 1
	Again        bool          // an earlier one stands for this time, too
}

// lookSums are sums of the looks of one process at waits of one kind.
type lookSums struct {
	n       int     // looks
	waiting float64 // sum
	last    float64
	differ  float64 // sum of the squares of the differences of each from the one before
	weight  float64 // the largest
	squares float64 // sum of the squares of the times, ns²
	seen    float64 // ns for which they stand

	begun, ended float64 // waits that began in slices, and those of them whose end was seen
	lengths      map[*Coverage]*mainSums

	lookedTimes, slicedTimes lockTimes
}

// looked returns the sums of waits for monitors, or of others.
func (r *Events) looked(monitor bool) *lookSums {
	if r.looks == nil {
		r.looks = map[bool]*lookSums{}
	}
	if r.looks[monitor] == nil {
		r.looks[monitor] = &lookSums{lengths: map[*Coverage]*mainSums{}}
	}
	return r.looks[monitor]
}

// observe adds a wait, and returns the main sums of which its value is a part: all, unless only a
// choice decides.
func (s *lookSums) observe(e *Event, all map[*Coverage]*mainSums) map[*Coverage]*mainSums {
	switch e.Length {
	case LengthsLater:
		s.begun += float64(e.Every)
	case LengthsSliced:
		s.ended += float64(e.Every)
		return s.lengths
	case LengthsLooked:
		if !e.Kind.Apart(&e.Labels) {
			s.seen += e.Sums.Values[e.Kind.Main()]
		}
	}
	return all
}

const (
	// mostlyEnded is the least part of the waits that begin in slices and end there, of which
	// slices know the lengths.
	mostlyEnded = 0.8
	// leastChoice is how many slices there are at least that know: of fewer, the interval may be
	// narrow by chance.
	leastChoice = 4
)

// bySlices reports whether the lengths of waits are taken from slices, and not from looks: most
// waits fit into a slice, slices know the sum better, and looks do not contradict, as they do if
// some threads wait for long.
func (parts *CoveredParts) bySlices(s *lookSums) bool {
	if s.n == 0 || s.begun == 0 || s.ended < mostlyEnded*s.begun {
		return s.n == 0
	}
	for c := range s.lengths {
		if part := parts.of[c]; part.partial() && part.slices < leastChoice {
			return false
		}
	}
	sum, off, variance := parts.sliced(s)
	sliced, looked := math.Hypot(off, normal95*math.Sqrt(variance)), s.within()
	return sliced < looked && math.Abs(s.seen-sum) <= math.Hypot(sliced, looked)
}

// sliced returns what slices say of the sum of lengths, in ns: half of its 95 % interval due to the
// choice of slices, and the variance due to recording one in N.
func (parts *CoveredParts) sliced(s *lookSums) (sum, off, variance float64) {
	for c, of := range s.lengths {
		factor := parts.factor(profile.Locks, c)
		sum += factor * of.sum
		variance += factor * factor * of.variance
		if part, ok := parts.of[c]; ok {
			off = math.Hypot(off, part.within(of.rates))
		}
	}
	return sum, off, variance
}

// leftOut returns a function that reports whether a row is of the lengths that were not chosen.
func (r *Events) leftOut(covered *CoveredParts) func(*EventKey) bool {
	not := map[bool]Lengths{}
	for monitor, l := range r.looks {
		not[monitor] = LengthsSliced
		if covered.bySlices(l) {
			not[monitor] = LengthsLooked
		}
	}
	return func(key *EventKey) bool {
		return key.lengths != LengthsKnown && key.lengths == not[key.What == monitorWait]
	}
}

// AddLook adds a look at a process to every window that wants it.
func (s *State) AddLook(p *Process, l *Look) {
	for w := range s.windows {
		w.AddLook(p, l)
	}
}

// AddLook adds the part of the time of a look that is in the window, if it wants the process.
func (w *Window) AddLook(p *Process, l *Look) {
	length := l.Until - max(l.Since, w.Began)
	if !w.Wants(p.PID) || length <= 0 {
		return
	}
	w.EventSet(p).ByKind(profile.Locks).looked(l.Monitor).add(l, length)
}

func (s *lookSums) add(l *Look, length time.Duration) {
	s.squares += float64(length) * float64(length)
	if l.Again && s.n > 0 {
		return
	}
	if s.n > 0 {
		s.differ += (l.Waiting - s.last) * (l.Waiting - s.last)
	}
	s.n++
	s.last, s.waiting, s.weight = l.Waiting, s.waiting+l.Waiting, max(s.weight, l.Weight)
}

// within is half of the 95 % interval of the time that the looks stand for, in ns. How much a look
// varies is estimated from differences of consecutive ones, as CoveredParts.within does for slices;
// it is at least what drawing the threads makes of it. Looks that saw nothing leave room for what
// one thread in all of them would be. A single look says nothing of how threads come and go: half
// of it may.
func (s *lookSums) within() float64 {
	if s.n == 0 {
		return 0
	}
	mean := s.waiting / float64(s.n)
	variance := mean * mean / 4
	if s.n > 1 {
		few := profile.StudentT(s.n-1) / normal95
		variance = few * few * s.differ / float64(2*(s.n-1))
	}
	variance = max(variance, s.weight*max(mean, s.weight/float64(s.n)))
	return normal95 * math.Sqrt(variance*s.squares)
}
