package profile

import (
	"cmp"
	"math"
	"slices"
)

// An Extent says how much there was to observe of one subject in one process, and how much of it
// was observed. There does not come from the samples or events whose sum it judges: the VM's own
// counters, the scheduler's accounts, the life of threads and the time for which probes were
// attached are its sources.
type Extent struct {
	// Subject is the profile that it belongs to: SubjectCPU, SubjectCalls, or EventKind.String.
	Subject string  `json:"subject"`
	What    string  `json:"what"`             // what is measured, in the plural: "allocated bytes"
	Unit    string  `json:"unit"`             // unit of the amounts, in pprof's words: "bytes", "nanoseconds", "count"
	Source  string  `json:"source,omitempty"` // who measured There: "the JVM's counters", "the scheduler"
	There   float64 `json:"there"`            // at least 0; a lower bound if the amount of one of Missed is unknown
	// Observed is the part of There that samples or events stand for, without scaling; 0 to There.
	Observed float64 `json:"observed"`
	// Missed says why the rest was not observed, the largest amount first. It may be empty, or
	// explain only a part of the rest.
	Missed []Missed `json:"missed,omitempty"`
}

// What is measured of Wall and of OffCPU.
const (
	ThreadTimes = "thread time"
	ThreadWaits = "thread waits"
)

// Subjects of an Extent that are not kinds of events.
const (
	SubjectCPU   = "cpu"
	SubjectCalls = "calls"
)

// A Missed is an amount that was not observed for one reason.
type Missed struct {
	Amount float64 `json:"amount,omitempty"` // in the Extent's unit; 0 if there was some and nobody knows how much
	Why    string  `json:"why"`              // a clause: "the probes were attached after it began"
}

// Enough is the share from which on an observation is good.
const Enough = 0.95

const (
	maxMissed  = 8  // reasons of one Extent
	maxExtents = 32 // subjects of one process
)

// Share is the observed part, 0 to 1. It is 1 if there was nothing to observe.
func (e *Extent) Share() float64 {
	if !(e.There > 0) {
		return 1
	}
	return min(max(e.Observed/e.There, 0), 1)
}

// Unknown reports whether a part of unknown size was not observed.
func (e *Extent) Unknown() bool {
	return slices.ContainsFunc(e.Missed, func(m Missed) bool { return m.Amount == 0 })
}

// Good reports whether at least Enough was observed, and nothing of unknown size was missed.
func (e *Extent) Good() bool { return e.Share() >= Enough && !e.Unknown() }

// SameSubject reports whether o measures the same, so that Add may add it.
func (e *Extent) SameSubject(o *Extent) bool {
	return e.Subject == o.Subject && e.What == o.What && e.Unit == o.Unit
}

// Add adds the extent of another window or process.
func (e *Extent) Add(o *Extent) {
	e.Source = cmp.Or(e.Source, o.Source)
	e.There += o.There
	e.Observed += o.Observed
	for _, m := range o.Missed {
		e.Miss(m.Amount, m.Why)
	}
}

// Miss adds an amount to those that were not observed for the reason; 0 says that it is not known
// how much that was.
func (e *Extent) Miss(amount float64, why string) {
	at := slices.IndexFunc(e.Missed, func(m Missed) bool { return m.Why == why })
	if at < 0 {
		if len(e.Missed) == maxMissed {
			at = maxMissed - 1
			e.Missed[at].Why = "other causes"
		} else {
			at = len(e.Missed)
			e.Missed = append(slices.Clip(e.Missed), Missed{Amount: amount, Why: why})
			amount = 0
		}
	}
	known := e.Missed[at].Amount
	switch {
	case known == 0 || math.IsNaN(amount) || amount <= 0: // stays unknown, or is new
	default:
		e.Missed[at].Amount = known + amount
	}
	slices.SortStableFunc(e.Missed, func(a, b Missed) int { return cmp.Compare(b.Amount, a.Amount) })
}

// AddExtents adds the extents of another window to those of a process: one for each subject, and no
// more than 32.
func AddExtents(to []Extent, from ...Extent) []Extent {
	for i := range from {
		if at := slices.IndexFunc(to, func(e Extent) bool { return e.SameSubject(&from[i]) }); at >= 0 {
			to[at].Add(&from[i])
			continue
		}
		if len(to) == maxExtents {
			return to
		}
		one := from[i]
		one.Missed = slices.Clone(one.Missed)
		to = append(to, one)
	}
	return to
}
