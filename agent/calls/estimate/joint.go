package estimate

// A joint is what windows heard of two codes together.
type joint struct {
	from, to      float64 // hits of either, in windows that were not full
	fromSq, toSq  float64 // sums of the squares of the hits of each window
	entries       float64 // hits of from in all windows
	calls         float64 // hits of to that from called, in all windows
	most          float64 // hits that the smallest full window had; 0 if none was full
	windows, full float64
	met           float64 // windows in which from called to
}

// ratio is how often to is called per call of from, whoever calls it, and the variance of its logarithm.
func (j *joint) ratio() (ratio, variance float64, ok bool) {
	if j.from <= 0 || j.to <= 0 || j.from+j.to < 8 {
		return 0, 0, false
	}
	variance = 0.1 + 1/j.from + 1/j.to + 0.3*(j.fromSq/j.from/j.from+j.toSq/j.to/j.to)
	return j.to / j.from, variance, true
}

// frequency is how often from calls to per entry, and the variance of its logarithm. Windows that were full count, if
// they had room for some entries and what they call: they end anywhere in that.
func (j *joint) frequency() (perEntry, variance float64, ok bool) {
	if j.entries < 4 || j.calls < 4 {
		return 0, 0, false
	}
	perEntry = j.calls / j.entries
	if j.full > 0 && max(perEntry, 1/perEntry) > j.most/5 {
		return 0, 0, false
	}
	// Calls in one window are of one phase of the guest.
	return perEntry, 0.02 + 1/j.entries + 1/j.calls + 0.5/j.met, true
}
