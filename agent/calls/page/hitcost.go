package page

import (
	"slices"
	"sync"
	"time"

	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// calibrateEvery: one burst of so many has stride 1, the first of each thread among them.
const calibrateEvery = 64

// hitCost measures what a hit costs, where it matters: in the guests, while they run. In a burst of stride 1 the time
// from one hit to the next is that of a whole hit (into the kernel, the program, and back) and of the guest's own
// work for one call. Of many such times a low quantile has next to no work of the guest in it, as guests that are
// worth sampling make calls within nanoseconds; and as it has some, it is an upper bound. Nothing that a guest writes
// enters into it.
type hitCost struct {
	mu   sync.Mutex
	last map[thread]hit
	gaps [1024]uint64 // ns, the latest
	n    int          // gaps ever
	low  uint64       // their lower quartile, 0 while there are too few
}

type thread struct{ guest, tid uint32 }

type hit struct{ burst, time uint64 }

// maxThreads bounds the threads whose last hit is kept.
const maxThreads = bpf.MaxPageGuests * bpf.PageSlots

// observe looks at a call; the calls of a thread come in their order.
func (h *hitCost) observe(c *bpf.Call) {
	if c.Stride != 1 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	key := thread{c.Attachment, c.Header.Tid}
	before, ok := h.last[key]
	if ok && before.burst == c.Burst && c.Header.Time > before.time {
		h.add(c.Header.Time - before.time)
	}
	if !ok && len(h.last) >= maxThreads {
		clear(h.last) // of threads that ended, mostly
	}
	if h.last == nil {
		h.last = map[thread]hit{}
	}
	h.last[key] = hit{c.Burst, c.Header.Time}
}

// add takes a gap. The quartile is looked at anew after so many that this costs next to nothing.
func (h *hitCost) add(gap uint64) {
	h.gaps[h.n%len(h.gaps)] = gap
	h.n++
	every := 256
	if h.n < every {
		every = 8 // what the first burst of the smallest size has twice
	}
	if h.n%every == 0 {
		gaps := slices.Sorted(slices.Values(h.gaps[:min(h.n, len(h.gaps))]))
		h.low = gaps[len(gaps)/4]
	}
}

// time returns the lower quartile of the latest gaps, 0 while there are too few.
func (h *hitCost) time() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Duration(h.low)
}
