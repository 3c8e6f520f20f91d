package fold

import (
	"math"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

// Allocations are observed where they meet the end of a thread's buffer. Their sites are a fair
// draw if buffers end at any place of what the thread does. A thread that repeats the same
// allocations may meet the ends at the same places again and again: then some sites are drawn too
// often, however many events there are. Their order shows it. Those of a fair draw come in any
// order. If all buffers end at one site, there is no order: then this may be the only site, or the
// only one that is met. Buffers of different lengths end at different places of what is repeated,
// so that one site in all of them is the only one, but for what chance misses.

// A site is what allocates.
type site struct {
	context cct.NodeID
	class   string
}

const (
	sequenceLength = 16   // sites: within so many, what a thread does seldom changes
	mostSequences  = 4096 // threads
	inStepErrors   = 5    // standard errors: one profile in two million is in step by chance
)

// order tests whether sites that follow each other are in any order: how many of them are equal, in
// sequences of each thread, against all permutations of these. The zero value has seen none.
type order struct {
	threads                   map[uint32]*sequence
	equal, expected, variance float64 // pairs

	first   site // site of the first of all events
	several bool // sites
	last    map[uint32]*recentEnds
	alike   int // events that came like one of the few before of their thread
	events  int // events with one before
}

// A bufferEnd is how an allocation met the end of a buffer.
type bufferEnd struct{ objects, bytes float64 }

// recentEnds are the last ones of a thread: lengths of buffers that come in turn are as much in
// step as equal ones.
type recentEnds struct {
	ends [4]bufferEnd
	n    int // number of those that were added
}

// add adds an end, and reports whether one of the others is equal.
func (r *recentEnds) add(end bufferEnd) (alike bool) {
	alike = slices.Contains(r.ends[:min(r.n, len(r.ends))], end)
	r.ends[r.n%len(r.ends)] = end
	r.n++
	return alike
}

type sequence struct {
	sites [sequenceLength]site
	n     int
}

func (o *order) add(tid uint32, at site, end bufferEnd) {
	if o.last == nil {
		o.last, o.first = map[uint32]*recentEnds{}, at
	}
	o.several = o.several || at != o.first
	ends := o.last[tid]
	switch {
	case ends != nil:
		o.events++
		if ends.add(end) {
			o.alike++
		}
	case len(o.last) < mostSequences:
		o.last[tid] = &recentEnds{ends: [4]bufferEnd{end}, n: 1}
	}
	of := o.threads[tid]
	if of == nil {
		if len(o.threads) >= mostSequences {
			return
		}
		if o.threads == nil {
			o.threads = map[uint32]*sequence{}
		}
		of = &sequence{}
		o.threads[tid] = of
	}
	of.sites[of.n] = at
	if of.n++; of.n < sequenceLength {
		return
	}
	of.n = 0
	times := map[site]float64{}
	for i, at := range of.sites {
		times[at]++
		if i > 0 && at == of.sites[i-1] {
			o.equal++
		}
	}
	// The probabilities that two, three, and two times two of the places have equal sites.
	const n = sequenceLength
	var two, three, four, squares float64
	for _, k := range times {
		two += k * (k - 1)
		three += k * (k - 1) * (k - 2)
		four += k * (k - 1) * (k - 2) * (k - 3)
		squares += k * (k - 1) * k * (k - 1)
	}
	four += two*two - squares
	two, three, four = two/(n*(n-1)), three/(n*(n-1)*(n-2)), four/(n*(n-1)*(n-2)*(n-3))
	mean := (n - 1) * two
	o.expected += mean
	o.variance += mean + 2*(n-2)*three + (n-2)*(n-3)*four - mean*mean
}

// inStep reports whether the sites are in an order.
func (o *order) inStep() bool {
	return o.variance > 0 && math.Abs(o.equal-o.expected) > inStepErrors*math.Sqrt(o.variance)
}

// alone reports whether there is one site, and nothing says that a thread has no others in step
// with it: at least half of its buffers were alike.
func (o *order) alone() bool { return o.last != nil && !o.several && 2*o.alike >= o.events }

// note is what a reader must know of the sites; "" if they are a fair draw.
func (o *order) note() string {
	switch {
	case o.inStep():
		return profile.InStep
	case o.alone():
		return profile.OneSite
	}
	return ""
}
