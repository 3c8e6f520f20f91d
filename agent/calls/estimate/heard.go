package estimate

import (
	"cmp"
	"math"
	"slices"
)

// A heard is what windows heard of one code.
type heard struct {
	windows []sound
	sorted  bool
}

// A sound is one window's part in it.
type sound struct {
	length float64 // seconds that the window was to last; 0 if unknown
	hits   float64 // of the code
	armed  float64 // seconds of the threads
	free   float64 // of these, those that hits did not take
	// full says that the window's end is not known: it ended with its last hit, and a good part of the hits was the
	// code's. Had it ended later, it might have had any number more: calls in bursts are a thousand times as dense.
	full bool
}

func (h *heard) add(s sound) { h.windows, h.sorted = append(h.windows, s), false }

// Bounds on what windows say about a code's rate.
const (
	minWindows = 2
	minFree    = 4e-3 // seconds
	mostFull   = 0.02 // part of the windows: they are the ones that met the code at work
	minSpread  = 0.01 // variance of the logarithm of any rate that was heard
	minSilence = 2e-3 // seconds
	// phaseVariance is that of the logarithm of a bound on the rate by one window.
	phaseVariance = 2.
)

// usable returns the windows that say how often the code is called: all up to a length at which hardly any was full.
// To leave out only the full ones would leave out bursts; to leave out the long ones, whatever they heard, does not.
func (h *heard) usable() []sound {
	if !h.sorted {
		slices.SortStableFunc(h.windows, func(a, b sound) int { return cmp.Compare(a.length, b.length) })
		h.sorted = true
	}
	n, full := 0, 0.
	for i, s := range h.windows {
		if s.full {
			full++
		}
		last := i+1 == len(h.windows) || h.windows[i+1].length > s.length
		if last && full <= mostFull*float64(i+1) {
			n = i + 1
		}
	}
	return h.windows[:n]
}

// rate is how often the code is called per second of CPU time, and the variance of its logarithm. Calls come in bursts:
// windows are few samples of a process that is far from Poisson's, of as many effective ones as hits²/squares. ok is
// false if that cannot be said.
func (h *heard) rate() (perSecond, variance float64, ok bool) {
	hits, squares, free := 0., 0., 0.
	usable := h.usable()
	for _, s := range usable {
		if !s.full {
			hits += s.hits
			squares += s.hits * s.hits
			free += s.free
		}
	}
	if hits <= 0 || free < minFree || len(usable) < minWindows {
		return 0, 0, false
	}
	return hits / free, minSpread + (1+squares/hits)/hits, true
}

// atLeast is a rate that the code's is more than, 0 if nothing is known. In a window that was full next to nothing may
// be left beside what hits took, and that is known badly: so they count as time that passed.
func (h *heard) atLeast() float64 {
	hits, armed := 0., 0.
	for _, s := range h.windows {
		hits += s.hits
		armed += s.armed
	}
	if armed <= 0 {
		return 0
	}
	return hits / armed
}

// atMost is a rate that the code's is hardly more than, and the variance of its logarithm; 0 if nothing is known. Silence
// says something, too; but guests have phases, and a few windows have seen few of them.
func (h *heard) atMost() (perSecond, variance float64) {
	hits, free, n := 0., 0., 0.
	for _, s := range h.usable() {
		if !s.full {
			hits += s.hits
			free += s.free
			n++
		}
	}
	if free < minSilence {
		return 0, 0
	}
	return (hits + 2*math.Sqrt(hits) + 3) / free, phaseVariance / n
}

// tooLong is the length of the shortest window that was full, 0 if none was.
func (h *heard) tooLong() (length float64) {
	for _, s := range h.windows {
		if s.full && (length == 0 || s.length < length) {
			length = s.length
		}
	}
	return length
}
