package usdt

import (
	"slices"
	"sync"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// A weigher turns samples into numbers of calls.
//
// Ticks are uniform in CPU time and every burst has the same number of samples. So a phase of few
// calls a second gets as many samples as an equally long one of many (Arnold & Grove's bursts have
// that bias, too). Therefore a burst stands for the CPU time of its ticks, times the rate of calls
// in it: the gaps between its calls, less the time to pass the probe. `make accuracy` shows the
// effect.
type weigher struct {
	mu     sync.Mutex
	period time.Duration // CPU time from tick to tick
	stride int
	held   map[uint32]*burst // by pid; of at most MaxUSDTGuests processes
	ends   map[uint32]cut    // by pid, as many: the latest burst whose window was closed before it had its samples
	least  [64]uint32        // shortest gaps of the latest bursts, ns
	bursts int               // number of bursts so far
}

// A burst is the unweighed samples of one burst, and how far it got.
type burst struct {
	calls.Held
	header             bpf.Header
	number             uint64
	samples            uint32 // planned
	left               uint32 // still to come
	ticks, gaps, least uint32
	spent              time.Duration
}

// A cut is how long a burst waited for calls, in CPU time of the process, until its window was
// closed.
type cut struct {
	number uint64
	lasted time.Duration
}

const (
	// minGaps is how many gaps a burst must have to be weighed: a rate over a few calls is mostly
	// chance. Each sample of shorter bursts counts as one call.
	minGaps = 64
	// usualPassing is the assumed time to pass a probe until it has been measured: 480-510 ns on
	// the machines seen.
	usualPassing = 500 * time.Nanosecond
	// resolution is the relative precision of that time. Less work than this part of it cannot be
	// measured, and could give a burst any weight.
	resolution = 0.1
)

// tune sets the interval of ticks from now on, and the distance of samples; 0 ticks pause it.
func (w *weigher) tune(r profile.Rate) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.Hz > 0 {
		w.period = time.Second / time.Duration(r.Hz)
		w.stride = max(1, r.Stride)
	}
}

// cut records that the window of a burst was closed after so much CPU time, before the burst had
// its samples.
func (w *weigher) cut(pid uint32, number uint64, lasted time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ends == nil || len(w.ends) >= bpf.MaxUSDTGuests {
		w.ends = map[uint32]cut{}
	}
	w.ends[pid] = cut{number, lasted}
}

// take adds a call with its edge, if it has one.
func (w *weigher) take(c *bpf.NamedCall, e profile.Edge, ok bool, add calls.Add) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := w.held[c.Header.Pid]
	if b != nil && (b.number != c.Burst || b.header.Start != c.Header.Start) {
		w.weigh(b, true, add)
		b = nil
	}
	if b == nil {
		b = w.begin(c, add)
	}
	b.header, b.left, b.ticks, b.gaps, b.least, b.spent = c.Header, c.Left, c.Ticks, c.Gaps, c.Least,
		time.Duration(c.Spent)
	if ok {
		b.Hold(e)
	}
	if c.Left == 0 {
		w.weigh(b, true, add)
		delete(w.held, c.Header.Pid)
	} else if b.Full() {
		w.weigh(b, false, add)
	}
}

// begin begins the burst whose first known sample is c; mu is held.
func (w *weigher) begin(c *bpf.NamedCall, add calls.Add) *burst {
	if len(w.held) >= bpf.MaxUSDTGuests { // most of these processes have ended
		for _, b := range w.held {
			w.weigh(b, true, add)
		}
		clear(w.held)
	}
	if w.held == nil {
		w.held = map[uint32]*burst{}
	}
	b := &burst{number: c.Burst, samples: c.Left + 1}
	w.held[c.Header.Pid] = b
	return b
}

// flush hands out everything, of bursts that may continue.
func (w *weigher) flush(add calls.Add) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.held {
		w.weigh(b, false, add)
	}
}

// weigh hands out what b holds, at the end of its burst or in the middle; mu is held.
func (w *weigher) weigh(b *burst, over bool, add calls.Add) {
	one := func(e profile.Edge, weight float64) { add(&b.header, e, weight) }
	if end, ok := w.ends[b.header.Pid]; ok && end.number == b.number && b.samples*uint32(w.stride) > minGaps {
		// The burst stands for all calls in the window: there were no others.
		made := float64(b.samples-b.left) * float64(w.stride)
		rate := made / float64(max(end.lasted, b.spent, time.Microsecond))
		b.HandOut(max(made, rate*float64(w.period)*float64(b.ticks)), one)
		return
	}
	if b.gaps < minGaps {
		b.HandOutSingly(one)
		return
	}
	toCome := float64(b.left)
	if over {
		w.least[w.bursts%len(w.least)] = b.least
		w.bursts++
		toCome = 0
	}
	gaps, passing := float64(b.gaps), float64(w.usual())
	work := max(float64(b.spent)-gaps*passing, resolution*gaps*passing, 1)
	ticks := calls.Ticks(b.ticks, toCome, float64(b.samples))
	b.HandOut(gaps/work*float64(w.period)*ticks, one)
}

// passing is the time that a process takes to pass the probe, without the BPF program.
func (w *weigher) passing() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.usual()
}

// usual is the shortest gap of an ordinary burst: between two calls with next to no work, with warm
// caches. The shortest gap of all bursts would be an outlier. mu is held.
func (w *weigher) usual() time.Duration {
	n := min(w.bursts, len(w.least))
	if n == 0 {
		return usualPassing
	}
	least := slices.Clone(w.least[:n])
	slices.Sort(least)
	return time.Duration(least[n/4])
}
