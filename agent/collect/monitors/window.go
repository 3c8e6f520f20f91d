package monitors

import (
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/probe/watch"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// Bounds of a Window.
const (
	MaxSites = watch.MaxAddresses
	MaxHits  = bpf.MaxEnterHits
)

// overrun is the factor on MaxHits at which each breakpoint stops trapping: a busy agent ends
// windows late.
const overrun = 2

// A Window says where to watch, and for how long.
type Window struct {
	Sites    []Site        // up to MaxSites
	Threads  []int         // ids
	Duration time.Duration // wall time
}

// A Hit is one recorded acquisition.
type Hit struct {
	Site   int    // index of Window.Sites
	Thread int    // id
	Klass  uint64 // address of the VM's class structure, 0 if unknown
}

// A Walk is the context of a hit.
type Walk struct {
	Hit    int    // index of Result.Hits
	Record []byte // as bpf.DecodeObservation takes it
}

// A Result is what a window observed.
type Result struct {
	Counts []int         // hits of each site
	Hits   []Hit         // in order of arrival
	Walks  []Walk        // contexts of some of them
	Ran    time.Duration // CPU time of the thread during the hits, if there was one thread; 0 if unknown
	Traps  time.Duration // the approximate part of it that hits took
	Cost   time.Duration // process CPU time: all hits, and setting and removing the breakpoints
}

// longEnough is how long a thread must have run with breakpoints so that the time of setting and
// removing them is negligible: some 50 us, with virtual debug registers.
const longEnough = 2 * time.Millisecond

// read converts the kernel side's data; trap is the time of a hit without the program, armed is how
// long the threads were on a CPU with breakpoints.
func (r *Result) read(w *bpf.MonitorWatch, sites int, trap, armed time.Duration) {
	hits := w.Hits[:min(w.Watch.Claimed, w.Watch.Limit, MaxHits)]
	r.Counts = make([]int, sites)
	for _, h := range hits {
		r.Hits = append(r.Hits, Hit{Site: int(h.Site), Thread: int(h.Tid), Klass: h.Klass})
		if int(h.Site) < sites {
			r.Counts[h.Site]++
		}
		r.Traps += trap + time.Duration(h.Ns)
	}
	n := len(hits)
	if w.Watch.Claimed < w.Watch.Limit && armed >= longEnough {
		r.Ran = armed
		return
	}
	// Only the time from one hit to the next is known, and only if the thread kept its CPU in
	// between.
	var gaps int
	var span, traps time.Duration
	for i := 1; i < n; i++ {
		from, to := &hits[i-1], &hits[i]
		if from.Tid == to.Tid && from.Switches == to.Switches && from.Time <= to.Time {
			gaps++
			span += time.Duration(to.Time - from.Time)
			traps += trap + time.Duration(from.Ns)
		}
	}
	if gaps == 0 {
		return
	}
	scale := float64(n) / float64(gaps)
	r.Ran, r.Traps = time.Duration(scale*float64(span)), time.Duration(scale*float64(traps))
}

// walk adds the context of a hit, if it is one of this window.
func (r *Result) walk(record []byte, number uint64, o *bpf.Observation) {
	if bpf.DecodeObservation(record, o) != nil || o.Seen.Count < 2 || o.Seen.Values[0] != number ||
		o.Seen.Values[1] >= MaxHits {
		return // The record is from another watch, or from no watch.
	}
	r.Walks = append(r.Walks, Walk{int(o.Seen.Values[1]), append([]byte(nil), record...)})
}
