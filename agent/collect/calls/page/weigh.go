package page

import (
	"sync"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// A weigher turns samples into numbers of calls.
//
// Ticks are uniform in CPU time, and every burst has the same number of samples. So a phase of many
// calls a second gets no more samples than a phase of few, although it makes more of the calls.
// (Arnold & Grove's bursts have that bias, too.) Therefore a burst is weighed by the rate of calls
// in it. It stands for the CPU time of the ticks that it answers, times the calls a second that it
// observed. Equivalently, each sample has its Horvitz-Thompson weight, the inverse of its
// probability of being sampled: the longer the calls before it took, the likelier a tick came among
// them. `make accuracy` shows the effect.
//
// The rate is that of the process without sampling: the time of hits, the countdown and the tick is
// subtracted.
type weigher struct {
	mu      sync.Mutex
	rate    profile.Rate // rate of the last ticks that were not paused
	threads map[thread]*burst

	calibrations uint64 // samples that only measure the cost of a hit
	unmeasured   uint64 // samples whose bursts have no usable time
}

// A burst is the unweighed samples of one burst, and how far it got.
type burst struct {
	calls.Held
	header   bpf.Header
	number   uint64
	samples  int      // planned
	weighs   bool     // it is planned to have enough calls for a rate
	at       position // position of the latest sample
	owed     float64  // ticks that no sample of earlier bursts answered
	answered float64  // the part of owed and at.ticks that handed-out samples stand for
}

// A position is how far a burst got, counted from its tick.
type position struct {
	made  uint32        // calls
	hits  uint32        // samples among them
	ticks uint32        // ticks that it answers
	spent time.Duration // CPU time
}

// costs are the time that sampling adds to a burst.
type costs struct {
	hit, skip time.Duration // time for a sampled call, and for any other call
	tick      time.Duration // time for the interruption, after the burst's time began
}

// The time of the process's stub to count a call that is not sampled: 1 ns is measured for methods
// compiled from C, 4 to 7 ns for those of a JIT, whose branches to the stub are mispredicted at
// first. For the budget, the larger value is used. From a burst's time a smaller one is subtracted:
// too small a value pulls the weights of bursts together, too large a value drives them apart.
const (
	skipTime  = 6 * time.Nanosecond
	skipLeast = 3 * time.Nanosecond
)

// minWeighed is how many calls a burst must have to be weighed: a rate over a few calls is mostly
// chance. Each sample of smaller bursts counts as one call.
const minWeighed = 64

// rate is calls a second, in the process's own time, from a burst's tick to a position.
func (c costs) rate(at position) float64 {
	calls, hits := float64(at.made), float64(at.hits)-1 // the last hit has only begun
	if calls == 0 {
		return 0
	}
	work := float64(at.spent) - float64(c.tick) - hits*float64(c.hit) - (calls-hits)*float64(c.skip)
	// The cost of hits varies by 10 to 20 %. Less work than that cannot be measured, and could give
	// a burst any weight: so the rate is limited to what can be measured.
	return calls / max(work, resolution*hits*float64(c.hit), calls*fastestCall) * 1e9
}

const (
	resolution  = 0.25
	fastestCall = 1 // ns: no machine makes calls faster
)

// weigh hands out what b holds, at the end of its burst or in the middle. The ticks of a burst with
// an impossible time are left to the next one. So are those of bursts without samples, and the part
// of a cut burst for samples that never came.
func (w *weigher) weigh(b *burst, over bool, c costs, add calls.Add) {
	if b.Len() == 0 {
		return
	}
	toCome := 0.
	if !over {
		toCome = float64(b.samples) - float64(b.at.hits)
	}
	ticks := b.owed + calls.Ticks(b.at.ticks, toCome, float64(b.samples))
	one := func(e profile.Edge, weight float64) { add(&b.header, e, weight) }
	switch {
	case !b.weighs:
		b.answered = ticks
		b.HandOutSingly(one)
	case !over && b.at.made < minWeighed:
		b.HandOutSingly(one) // and the rest of the burst has the rest of its calls
	case c.impossible(b.at):
		w.unmeasured += uint64(b.Drop())
	default:
		b.answered = ticks
		b.HandOut(c.rate(b.at)*w.period()*ticks, one)
	}
}

// begin begins the next burst of a thread, when the last one is over.
func (w *weigher) begin(b *burst, number uint64) {
	*b = burst{
		number: number, samples: w.rate.Samples, weighs: w.rate.Stride*w.rate.Samples >= minWeighed,
		owed: max(0, b.owed+float64(b.at.ticks)-b.answered),
	}
}

// impossible reports whether the hits alone must have taken longer than the burst's time: the
// thread moved to another CPU, and the scheduler's account of it was not up to date.
func (c costs) impossible(at position) bool {
	hits := max(at.hits, 1) - 1 // the last one has only begun
	return at.spent < time.Duration(hits)*c.hit/2
}

// tune sets how much is sampled from now on. In a pause, bursts that are under way keep their
// parameters.
func (w *weigher) tune(r profile.Rate) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.Hz > 0 {
		w.rate = r
	}
}

// period is the seconds of CPU time from one tick to the next.
func (w *weigher) period() float64 { return 1 / float64(max(w.rate.Hz, 1)) }

// take adds a call with its edge, if it has one. Samples are handed out when their burst is over.
func (w *weigher) take(c *bpf.Call, e profile.Edge, ok bool, cost costs, add calls.Add) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := thread{c.Attachment, c.Header.Tid}
	b := w.threads[key]
	if b == nil {
		if w.threads == nil {
			w.threads = map[thread]*burst{}
		}
		if len(w.threads) >= maxThreads {
			w.flush(cost, add)
			clear(w.threads)
		}
		b = &burst{}
		w.threads[key] = b
	}
	if b.number != c.Burst {
		w.weigh(b, true, cost, add)
		w.begin(b, c.Burst)
	}
	stride := max(c.Stride, 1)
	b.header = c.Header
	b.at = position{
		made: c.Made, hits: (c.Made-1)/stride + 1, ticks: c.Ticks, spent: time.Duration(c.Spent),
	}
	// The work between the hits of a calibration is too short to be measured.
	calibration := c.Stride == 1 && w.rate.Stride > 1
	switch {
	case !ok: // the caller discards the call and counts it
	case calibration:
		w.calibrations++
	default:
		b.Hold(e)
	}
	if over := int(b.at.hits) >= b.samples; over || b.Full() {
		w.weigh(b, over, cost, add)
	}
}

// flush hands out what all threads hold, of bursts that may continue.
func (w *weigher) flush(cost costs, add calls.Add) {
	for _, b := range w.threads {
		w.weigh(b, false, cost, add)
	}
}
