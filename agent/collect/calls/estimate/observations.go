package estimate

import (
	"cmp"
	"math"
	"slices"
)

// observations are those of all windows.
type observations struct {
	codes []codeObservations // by CodeID
	pairs map[pair]*joint    // pairs of codes in the same windows
}

// A pair is two codes.
type pair struct{ from, to CodeID }

func combine(in *Input) *observations {
	h := &observations{codes: make([]codeObservations, len(in.Codes)), pairs: map[pair]*joint{}}
	for i := range in.Windows {
		h.add(in, &in.Windows[i])
	}
	return h
}

// minKnown is the minimum share of a window outside of hits: below it, the window's time is not
// known.
const minKnown = 0.3

func (h *observations) add(in *Input, w *Window) {
	if !sensible(w.Armed) || !sensible(w.Length) {
		return
	}
	codes := slices.Clone(w.Codes)
	slices.Sort(codes)
	codes = slices.DeleteFunc(slices.Compact(codes), func(c CodeID) bool { return !in.has(c) })
	hits, total := make(map[CodeID]float64, len(codes)), 0.
	for _, hit := range w.Hits {
		if sensible(hit.Count) && slices.Contains(codes, hit.Callee) {
			hits[hit.Callee] += hit.Count
			total += hit.Count
		}
	}
	free := max(w.Armed-total*in.HitCost, 0)
	// A window that is mostly hits is treated as full: its time is not known.
	full := w.Full || free < minKnown*w.Armed
	for _, c := range codes {
		h.codes[c].add(windowObservation{length: w.Length, hits: hits[c], armed: w.Armed, free: free, full: full &&
			hits[c] > total/4})
	}
	for _, from := range codes {
		for _, to := range codes {
			if from == to {
				continue
			}
			j := h.pairs[pair{from, to}]
			if j == nil {
				j = &joint{}
				h.pairs[pair{from, to}] = j
			}
			j.windows++
			j.entries += hits[from]
			before := j.calls
			for _, hit := range w.Hits {
				if hit.Caller == from && hit.Callee == to && sensible(hit.Count) {
					j.calls += hit.Count
				}
			}
			if j.calls > before {
				j.withCalls++
			}
			if full {
				j.full++
				if j.most == 0 || total < j.most {
					j.most = total
				}
				continue
			}
			j.from += hits[from]
			j.to += hits[to]
			j.fromSq += hits[from] * hits[from]
			j.toSq += hits[to] * hits[to]
		}
	}
}

// equations returns the observations of rates.
func (h *observations) equations() []equation {
	var equations []equation
	for c := range h.codes {
		code := &h.codes[c]
		if rate, variance, ok := code.rate(); ok {
			equations = append(equations, equation{
				to: CodeID(c), from: VM, value: math.Log(rate), variance: variance,
				freedom: hardly, evidence: Listened,
			})
			continue
		}
		if least := code.atLeast(); least > 0 {
			equations = append(equations, equation{
				to: CodeID(c), from: VM, value: math.Log(least), variance: 0.5,
				freedom: rarely, bound: atLeast, evidence: Listened,
			})
		}
		if most, variance := code.atMost(); most > 0 {
			equations = append(equations, equation{
				to: CodeID(c), from: VM, value: math.Log(most), variance: variance,
				freedom: rarely, bound: atMost, evidence: Listened,
			})
		}
	}
	for _, p := range h.order() {
		if ratio, variance, ok := h.pairs[p].ratio(); ok && p.from < p.to {
			equations = append(equations, equation{
				to: p.to, from: p.from, value: math.Log(ratio), variance: variance,
				freedom: often, evidence: Listened,
			})
		}
	}
	return equations
}

// order lists the pairs in the order of their codes.
func (h *observations) order() []pair {
	pairs := make([]pair, 0, len(h.pairs))
	for p := range h.pairs {
		pairs = append(pairs, p)
	}
	slices.SortFunc(pairs, func(a, b pair) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) })
	return pairs
}

// codeObservations are the observations of one code in all windows.
type codeObservations struct {
	windows []windowObservation
	sorted  bool
}

// A windowObservation is one window's observation of a code.
type windowObservation struct {
	length float64 // planned length in seconds; 0 if unknown
	hits   float64 // number of hits of the code
	armed  float64 // CPU seconds of the threads
	free   float64 // the part of armed that hits did not take
	// full says that the window's end is not known: it ended with its last permitted hit, and a
	// large part of the hits was the code's. A later end could have brought any number more: calls
	// in bursts are a thousand times as dense.
	full bool
}

func (h *codeObservations) add(s windowObservation) {
	h.windows, h.sorted = append(h.windows, s), false
}

// Bounds on what windows say about a code's rate.
const (
	minWindows = 2
	minFree    = 4e-3 // seconds
	mostFull   = 0.02 // share of full windows: these are the ones that met the code at work
	minSpread  = 0.01 // variance of the logarithm of any observed rate
	minSilence = 2e-3 // seconds
	// phaseVariance is the variance of the logarithm of a bound on the rate from one window.
	phaseVariance = 2.
)

// usable returns the windows that show how often the code is called: all up to a length at which
// hardly any was full. To leave out only the full ones would leave out bursts. To leave out all
// long ones does not.
func (h *codeObservations) usable() []windowObservation {
	if !h.sorted {
		slices.SortStableFunc(h.windows, func(a, b windowObservation) int { return cmp.Compare(a.length, b.length) })
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

// rate returns calls per second of CPU time, and the variance of its logarithm. Calls come in
// bursts, far from a Poisson process: so windows are few samples, and the number of effective ones
// is hits²/squares. ok is false if there are too few observations.
func (h *codeObservations) rate() (perSecond, variance float64, ok bool) {
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

// atLeast is a lower bound of the code's rate, 0 if unknown. In a full window hits may have taken
// nearly all of the time, and their cost is not known well. So their time is not subtracted.
func (h *codeObservations) atLeast() float64 {
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

// atMost is an upper bound of the code's rate, and the variance of its logarithm; 0 if unknown. No
// hits are information, too; but programs have phases, and a few windows have seen few of them.
func (h *codeObservations) atMost() (perSecond, variance float64) {
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
func (h *codeObservations) tooLong() (length float64) {
	for _, s := range h.windows {
		if s.full && (length == 0 || s.length < length) {
			length = s.length
		}
	}
	return length
}

// A joint holds the observations of two codes in windows that watched both.
type joint struct {
	from, to      float64 // hits of each, in windows that were not full
	fromSq, toSq  float64 // sums of the squares of the hits of each window
	entries       float64 // hits of from in all windows
	calls         float64 // hits of to that from called, in all windows
	most          float64 // hits of the smallest full window; 0 if none was full
	windows, full float64
	withCalls     float64 // windows in which from called to
}

// ratio returns the number of calls of to, from all callers, per call of from, and the variance of
// its logarithm.
func (j *joint) ratio() (ratio, variance float64, ok bool) {
	if j.from <= 0 || j.to <= 0 || j.from+j.to < 8 {
		return 0, 0, false
	}
	variance = 0.1 + 1/j.from + 1/j.to + 0.3*(j.fromSq/j.from/j.from+j.toSq/j.to/j.to)
	return j.to / j.from, variance, true
}

// frequency returns how often from calls to per entry, and the variance of its logarithm. Full
// windows count if they had room for some entries and their calls: they may end anywhere between
// them.
func (j *joint) frequency() (perEntry, variance float64, ok bool) {
	if j.entries < 4 || j.calls < 4 {
		return 0, 0, false
	}
	perEntry = j.calls / j.entries
	if j.full > 0 && max(perEntry, 1/perEntry) > j.most/5 {
		return 0, 0, false
	}
	// Calls in one window are all from one phase of the program.
	return perEntry, 0.02 + 1/j.entries + 1/j.calls + 0.5/j.withCalls, true
}
