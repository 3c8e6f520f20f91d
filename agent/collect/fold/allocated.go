package fold

import (
	"cmp"
	"maps"
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
