package listener

import (
	"fmt"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/attach"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// Bounds of a Window.
const (
	MaxEntries  = attach.MaxBreakpoints // methods in one window
	MaxHits     = bpf.MaxListenerHits
	MaxDuration = time.Second
)

// A Window says for how long to listen.
type Window struct {
	Duration time.Duration // of wall time, up to MaxDuration
	MaxHits  int           // of all entries and threads together: the window ends with the last one; up to MaxHits
	Deliver  bool          // put the calls into the agent's event stream, too (struct call)
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
	Callee bpf.Frame // the entry point; plain addresses where the kernel side knows no VM
	Caller bpf.Frame // the call site: where the call will return to
	// How far below the base of the thread's stack their frames are, in bytes; 0 where that is not known.
	CalleeDepth, CallerDepth uint32
}

// A Result is what a window heard.
type Result struct {
	Number uint64        // of the window: Call.Burst of what was delivered
	Hits   []Hit         // as they came, over all threads
	Capped bool          // MaxHits was reached: see the package's comment
	Late   int           // calls that arrived after that, until the breakpoints were gone
	Length time.Duration // wall time from the first breakpoint's arming to the first's disarming
	// Ran is for how long the threads were on a CPU while they were armed, all together: hits and Late are part of it,
	// at HitTime each.
	Ran time.Duration
	// Threads were listened to. Others were left out because their debug registers are in use (Busy), because they
	// ended (Gone), because there were too many, or because they began later (not counted).
	Threads, Busy, Gone, Left int
}

// Count is how many calls of an entry arrived.
func (r *Result) Count(entry int) (n int) {
	for _, h := range r.Hits {
		if h.Entry == entry {
			n++
		}
	}
	return n
}

// A Site is a callee and where it is called.
type Site struct {
	Entry  int
	Caller bpf.Frame
}

// Sites is how many calls came from each call site.
func (r *Result) Sites() map[Site]int {
	sites := make(map[Site]int)
	for _, h := range r.Hits {
		sites[Site{h.Entry, h.Caller}]++
	}
	return sites
}

// read takes over what the kernel side wrote, which is not more than it has room for.
func (r *Result) read(w *bpf.ListenerWindow) {
	n := min(w.Claimed, w.Limit)
	r.Capped = w.Claimed >= w.Limit
	r.Late = int(w.Claimed - n)
	r.Hits = make([]Hit, n)
	for i, h := range w.Hits[:n] {
		r.Hits[i] = Hit{Entry: int(h.Entry), Thread: int(h.Tid), Time: h.Time, Callee: bpf.Frame(h.Callee), Caller: bpf.Frame(h.Caller), CalleeDepth: h.CalleeDepth, CallerDepth: h.CallerDepth}
	}
}
