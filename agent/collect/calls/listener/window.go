package listener

import (
	"fmt"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/probe/watch"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// Bounds of a Window.
const (
	MaxEntries  = watch.MaxAddresses // methods in one window
	MaxHits     = bpf.MaxListenerHits
	MaxDuration = time.Second
)

// A Window limits how long to watch.
type Window struct {
	Duration time.Duration // wall time, up to MaxDuration
	// MaxHits is how many hits all entries and threads have together: the window ends with the last
	// one. It is at most the constant MaxHits.
	MaxHits int
	Deliver bool // put the calls into the agent's event stream, too (struct call)
}

func (w Window) check(entries int) error {
	switch {
	case entries < 1 || entries > MaxEntries:
		return fmt.Errorf("window with %d entries: want 1 to %d", entries, MaxEntries)
	case w.MaxHits < 1 || w.MaxHits > MaxHits:
		return fmt.Errorf("window of %d hits: want 1 to %d", w.MaxHits, MaxHits)
	case w.Duration <= 0 || w.Duration > MaxDuration:
		return fmt.Errorf("window of %v: want up to %v", w.Duration, MaxDuration)
	}
	return nil
}

// A Hit is one call that arrived.
type Hit struct {
	Entry  int       // index of the method's Entry
	Thread int       // thread id
	Time   uint64    // ns, CLOCK_MONOTONIC
	Callee bpf.Frame // the entry point; a plain address where the kernel side knows no VM
	Caller bpf.Frame // the call site: the return address of the call
	// Offsets of their frames from the base of the thread's stack, in bytes; 0 if unknown.
	CalleeDepth, CallerDepth uint32
}

// A Result is what a window observed. Its number is the Burst of the delivered Calls; Capped says
// that MaxHits was reached: see the package's comment.
type Result struct {
	watch.Observation
	Hits []Hit // in order of arrival, over all threads
}

// hitsOf returns the hits that the kernel side recorded, at most as many as it has room for.
func hitsOf(w *bpf.CallWatch) []Hit {
	hits := make([]Hit, min(w.Watch.Claimed, w.Watch.Limit, MaxHits))
	for i, h := range w.Hits[:len(hits)] {
		hits[i] = Hit{Entry: int(h.Entry), Thread: int(h.Tid), Time: h.Time, Callee: bpf.Frame(h.Callee),
			Caller: bpf.Frame(h.Caller), CalleeDepth: h.CalleeDepth, CallerDepth: h.CallerDepth}
	}
	return hits
}
