package hotspot

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// A cost is what a timing contains of the traps at its ends, measured in the process itself: pairs
// of neighbouring instructions, in the same threads and next to the same code. Pairs of one window
// are alike and windows differ, so the error is that of a mean of windows.
type cost struct {
	mu      sync.Mutex
	windows []float64 // means of windows, ns
	pairs   int
}

const (
	leastPairs   = 256  // pairs that are needed before anything is timed
	leastWindows = 4    // likewise
	manyPairs    = 8192 // no more are needed
	keptWindows  = 256
)

// middle is the mean without the lowest and the highest tenth: a host that takes the CPU away now
// and then, which no guest sees, must not count.
func middle(values []float64) float64 {
	slices.Sort(values)
	cut := len(values) / 10
	values = values[cut : len(values)-cut]
	var sum float64
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// add takes over a window of pairs.
func (c *cost) add(pairs []bpf.Timed) {
	if len(pairs) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.windows) >= keptWindows {
		c.windows = slices.Delete(c.windows, 0, 1)
	}
	c.windows = append(c.windows, middle(rawTimes(pairs)))
	c.pairs += len(pairs)
}

// ready reports whether timings can be corrected.
func (c *cost) ready() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pairs >= leastPairs && len(c.windows) >= leastWindows
}

// enough reports whether more pairs would not help.
func (c *cost) enough() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pairs >= manyPairs
}

// get is the cost, and its standard error.
func (c *cost) get() (mean, within time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := float64(len(c.windows))
	if n == 0 {
		return 0, 0
	}
	var sum, squares float64
	for _, v := range c.windows {
		sum += v
	}
	m := sum / n
	for _, v := range c.windows {
		squares += (v - m) * (v - m)
	}
	if n > 1 {
		within = time.Duration(math.Sqrt(squares / (n - 1) / n))
	}
	return time.Duration(m), within
}

// duration is that of a timing without what measuring it took.
func duration(t *bpf.Timed, trap time.Duration) time.Duration {
	return time.Duration(int64(t.Ns-t.Waited)) - trap - time.Duration(t.Inner)*trap - time.Duration(t.InnerNs)
}
