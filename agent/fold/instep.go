package fold

import (
	"math"

	"github.com/vmprof-agent/vmprof-agent/cct"
)

// Allocations are observed where they meet the end of a thread's buffer. Their sites are a fair draw if buffers end at any place of what the thread
// does. A thread that repeats the same allocations may meet the ends at the same places again and again: then some sites are drawn too often, however
// many events there are. Their order shows it. Those of a fair draw come in any order.

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

// order tests whether sites that follow each other are in any order: how many of them are equal, in sequences of each thread, against all permutations of
// these. The zero value has seen none.
type order struct {
	threads                   map[uint32]*sequence
	equal, expected, variance float64 // pairs
}

type sequence struct {
	sites [sequenceLength]site
	n     int
}

func (o *order) add(tid uint32, at site) {
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
