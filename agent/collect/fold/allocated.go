package fold

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// Allocated is what the VM itself has counted of the bytes that its threads allocated in a window.
// It is exact; observed allocations only divide it among sites and classes.
type Allocated struct {
	Alive map[uint64]AllocatedThread // threads that ran at the window's end, by the address of the VM's structure
	Ended float64                    // bytes of those that had ended
	// Cut is the part of Ended from the last ones of each thread: no observed allocation can stand
	// for them any more.
	Cut float64
	// Before is how many bytes were allocated before the agent had attached, where the process
	// began in the window; they are not in the others.
	Before      float64
	EndsUnknown bool // Ended does not have those that probes do not report
	EndsLost    bool // Ended does not have some, as their records were lost
	// Skew bounds the error: the bytes that were allocated between the ends of the window and the
	// times at which the counts were read.
	Skew float64
}

// An AllocatedThread is a thread's part.
type AllocatedThread struct {
	TID   uint32 // 0 if it is not known
	Bytes float64
}

// Total is what all threads have allocated, in bytes.
func (a *Allocated) Total() float64 {
	total := a.Ended + a.Before
	for _, t := range a.Alive {
		total += t.Bytes
	}
	return total
}

// unsited is the frame of bytes that no observed allocation stands for.
var unsited = guest.Marker(profile.NoSite)

// Reasons of bytes without a site.
const (
	whyBefore = "they were allocated before the agent attached to the JVM"
	whyCut    = "threads ended before their next allocation was sampled"
	whyFew    = "threads allocated too little to be sampled"
	whyEnds   = "this libjvm has no symbols, so the bytes of ended threads are unknown"
	whyLost   = "records of threads that ended were lost"
	whySliced = "observing them all the time would exceed the budget"
)

// A division divides what the VM counted among what was observed. Each thread that ran at the end
// is divided by its own events, the others together by theirs.
type division struct {
	*Allocated
	threads map[uint32]*dividedThread
	ended   dividedThread
	none    float64 // bytes without a site
	extent  profile.Extent
}

type dividedThread struct {
	bytes            float64 // by the VM
	known, estimated float64 // by events
}

// factors are those of known and of estimated bytes.
func (t *dividedThread) factors() (known, estimated float64) {
	if t.known > t.bytes {
		return t.bytes / t.known, 0
	}
	if t.estimated == 0 {
		return 1, 0
	}
	return 1, (t.bytes - t.known) / t.estimated
}

// unknown are the bytes that events can only stand for by an estimate.
func (t *dividedThread) unknown() float64 { return max(t.bytes-t.known, 0) }

// left are the bytes that no event stands for.
func (t *dividedThread) left() float64 {
	if t.estimated > 0 {
		return 0
	}
	return t.unknown()
}

// divide prepares the division of a among the events.
func (r *Events) divide(a *Allocated, covered *CoveredParts) *division {
	d := &division{Allocated: a, threads: map[uint32]*dividedThread{}, ended: dividedThread{bytes: a.Ended}}
	for address, t := range a.Alive {
		tid := cmp.Or(t.TID, r.byVM[address])
		if d.threads[tid] == nil {
			d.threads[tid] = &dividedThread{}
		}
		d.threads[tid].bytes += t.Bytes
	}
	for key, sums := range r.Rows {
		if key.What == profile.ExactAllocations {
			continue
		}
		main := profile.Allocations.Main()
		t := d.thread(key.tid)
		t.known += sums.Known[main]
		t.estimated += covered.factor(profile.Allocations, key.cover) * (sums.Values[main] - sums.Known[main])
	}
	// Where observed allocations stand for the time in which none were observed, too, they do so
	// for the last bytes of threads.
	cut, share := min(a.Cut, d.ended.unknown()), 1.0
	for c := range r.sums {
		if part := covered.of[c]; part.partial() {
			share = min(share, part.Observed.Seconds()/part.Total.Seconds())
			cut = 0
		}
	}
	d.ended.bytes -= cut
	d.extent = profile.Extent{Subject: profile.Allocations.String(), What: "allocated bytes", Unit: "bytes",
		Source: "the JVM's counters", There: a.Total()}
	few := d.ended.left()
	for _, t := range d.threads {
		few += t.left()
	}
	d.none = min(a.Before+cut+few, d.extent.There)
	sliced := (d.extent.There - d.none) * (1 - share)
	d.extent.Observed = d.extent.There - d.none - sliced
	for _, missed := range [...]profile.Missed{
		{Amount: a.Before, Why: whyBefore}, {Amount: cut, Why: whyCut}, {Amount: few, Why: whyFew},
		{Amount: sliced, Why: whySliced},
	} {
		if missed.Amount > 0 {
			d.extent.Miss(missed.Amount, missed.Why)
		}
	}
	if a.EndsUnknown {
		d.extent.Miss(0, whyEnds)
	}
	if a.EndsLost {
		d.extent.Miss(0, whyLost)
	}
	return d
}

// thread returns the thread of a row.
func (d *division) thread(tid uint32) *dividedThread {
	if t := d.threads[tid]; t != nil {
		return t
	}
	return &d.ended
}

// scale scales the sums of a row; factor is what its estimates are multiplied by otherwise.
func (d *division) scale(key *EventKey, sums *EventSums, factor float64) EventSums {
	known, estimated := d.thread(key.tid).factors()
	out := *sums
	for i := range out.Values {
		out.Values[i] = known*sums.Known[i] + factor*estimated*(sums.Values[i]-sums.Known[i])
	}
	return out
}

// unsitedRows are the rows of bytes without a site: one for each thread, and one for those that are
// not known.
func (d *division) unsitedRows(tree *cct.Tree[symbol.Symbol], name func(tid uint32) string) (rows []profile.EventRow) {
	none := d.none
	var context cct.NodeID
	add := func(tid uint32, bytes float64) {
		if context == cct.Root {
			context = tree.Add([]symbol.Symbol{unsited}, 0)
		}
		row := profile.EventRow{Context: context, TID: int(tid), Thread: name(tid),
			EventLabels: profile.EventLabels{Class: profile.NoSite}}
		row.Values[profile.Allocations.Main()] = bytes
		rows = append(rows, row)
		none -= bytes
	}
	for _, tid := range slices.Sorted(maps.Keys(d.threads)) {
		if left := d.threads[tid].left(); left > 0 && tid != 0 && len(rows) < MaxEventRows/2 {
			add(tid, left)
		}
	}
	if none >= 1 {
		add(0, none)
	}
	return rows
}

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

// AllocationSums are the sums of an observed allocation of an object of size bytes. It was drawn
// from bytes of objects, each with a probability proportional to its size, and one in every such
// draws is recorded. So it stands for as many objects of its size as make up those bytes.
//
// A thread of HotSpot allocates in a buffer of its own and is not observed before it reaches the
// buffer's end, with an object that does not fit into the rest. If the rest is small, the thread
// gets a new buffer. Otherwise the object is allocated outside and the buffer is kept
// (MemAllocator::allocate_inside_tlab_slow in src/hotspot/share/gc/shared/memAllocator.cpp). The
// kernel side records the first object at each end in either case. Counting only new buffers, as is
// often done, misses objects larger than the part of a buffer that may be wasted, as these rarely
// cause a new one. Counting every new buffer adds those that come first after a collection, whose
// objects are mostly small.
func AllocationSums(size, bytes uint64, every uint32) EventSums {
	s := EventSums{Events: 1}
	if size == 0 {
		return s
	}
	n := float64(every)
	s.Values[0], s.Values[1] = n*float64(bytes)/float64(size), n*float64(bytes)
	return s
}
