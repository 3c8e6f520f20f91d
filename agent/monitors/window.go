package monitors

import (
	"time"

	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// Bounds of a Window.
const (
	MaxSites = bpf.EnterSites
	MaxHits  = bpf.MaxEnterHits
)

// overrun is how many times MaxHits each breakpoint traps at most: a busy agent ends windows late.
const overrun = 2

// A Window says where to listen, and for how long.
type Window struct {
	Sites    []Site        // up to MaxSites
	Threads  []int         // ids
	Duration time.Duration // of wall time
}

// A Hit is one enter that was taken down.
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

// A Result is what a window heard.
type Result struct {
	Counts []int         // hits of each site
	Hits   []Hit         // as they came
	Walks  []Walk        // contexts of some of them
	Ran    time.Duration // CPU time of the thread in which they came, if it was one; 0 if it is not known
	Traps  time.Duration // of that, what the hits took, about
	Cost   time.Duration // of the guest's CPU time: all hits, and to set and remove the breakpoints
}

// longEnough is how long a thread must have run with breakpoints for the time that it takes to set and to remove them not
// to matter: that is some 50 us, where debug registers are virtual.
const longEnough = 2 * time.Millisecond

// read takes over what the kernel side wrote; trap is what a hit takes beside the program, armed for how long the threads
// were on a CPU with breakpoints.
func (r *Result) read(w *bpf.EnterWindow, sites int, trap, armed time.Duration) {
	hits := w.Hits[:min(w.Claimed, w.Limit, MaxHits)]
	r.Counts = make([]int, sites)
	for _, h := range hits {
		r.Hits = append(r.Hits, Hit{Site: int(h.Site), Thread: int(h.Tid), Klass: h.Klass})
		if int(h.Site) < sites {
			r.Counts[h.Site]++
		}
		r.Traps += trap + time.Duration(h.Ns)
	}
	n := len(hits)
	if w.Claimed < w.Limit && armed >= longEnough {
		r.Ran = armed
		return
	}
	if n < 2 {
		return
	}
	// From the first hit to the last one there is one interval less than there are hits. The thread may have lost its CPU
	// meanwhile, but cannot have run for longer than it had breakpoints.
	last := hits[n-1]
	span := min(time.Duration(last.Time-min(hits[0].Time, last.Time)), armed)
	r.Traps -= trap + time.Duration(last.Ns)
	scale := float64(n) / float64(n-1)
	r.Ran, r.Traps = time.Duration(scale*float64(span)), time.Duration(scale*float64(r.Traps))
}

// walk takes over the context of a hit, if it is one of this window.
func (r *Result) walk(record []byte, number uint64, o *bpf.Observation) {
	if bpf.DecodeObservation(record, o) != nil || o.Seen.Count < 2 || o.Seen.Values[0] != number || o.Seen.Values[1] >= MaxHits {
		return // of the last window, which ended late
	}
	r.Walks = append(r.Walks, Walk{int(o.Seen.Values[1]), append([]byte(nil), record...)})
}
