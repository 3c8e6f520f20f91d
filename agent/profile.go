package agent

import (
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/calls"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
)

// A Profile is a closed window: what was sampled between Start and Start+Duration. It never changes after it was
// handed out, and everybody may keep it.
type Profile struct {
	Start     time.Time     // wall clock, for people; order and length come from CLOCK_MONOTONIC
	Duration  time.Duration // of the window
	Period    time.Duration // of CPU time that one sample stands for
	Event     string        // what ticked: "cpu-clock"
	Unit      Unit          // what the trees of threads count
	Processes []*Process    // ordered by PID, then start, then exec
	Counts    Counts        // of this window
	Comments  []string      // version, kernel, what readers must know
	// EventCounts are those of this window, of all kinds of events together.
	EventCounts EventCounts
}

// A Unit is what trees count.
type Unit uint8

const (
	Samples    Unit = iota // ticks of the sampling event
	CallCounts             // calls of the innermost method: each one, if nothing was lost
)

// A Process is one process in a Profile.
type Process struct {
	PID        int
	Comm       string // of the thread group leader
	Runtime    string // "hotspot", or "" for none
	VM         string // the runtime's version for people, or ""
	Service    string // systemd unit, container id or comm: the bounded name for metrics
	Executable symbolize.Mapping
	Notes      []string // facts that a reader of this process's part must know
	Threads    []*Thread
	Contexts   *Contexts // nil if every stack was walked
	// Calls are what call engines learned. Exact profiles have whole contexts instead: see Profile.Unit.
	Calls []*Calls
	// Events are what happened beside the use of CPU time, by kind; a kind that was not asked for is missing.
	Events []*Events
}

// A Thread is one thread in a Process, with its calling context tree, which counts the profile's Unit. Where contexts are
// not all certain, or safepoints are recorded, a thread is there several times: once for each certainty, and apart for what
// was sampled while its VM had stopped its Java threads.
type Thread struct {
	TID     int
	Name    string
	Stopped bool
	Context Certainty
	Tree    *cct.Tree[symbolize.Symbol]
}

// Counts accounts for every tick of a window. Two identities hold once the stream is drained:
//
//	Attempted == Delivered + sum(Dropped)
//	Delivered == Folded + sum(Discarded)
type Counts struct {
	Attempted uint64            // samples that the kernel side began
	Delivered uint64            // samples that user space received
	Dropped   map[string]uint64 // by cause, in the kernel: ring_full, …
	Folded    uint64            // samples in the trees
	Discarded map[string]uint64 // by cause, in user space: malformed, …
	Idle      uint64            // ticks on an idle CPU; not attempted
	Filtered  uint64            // ticks in processes that were not chosen, for this window or at all; not attempted
	Truncated map[string]uint64 // folded samples whose walk ended early, by reason
	Stale     uint64            // frames that could not be resolved against the code of their time
	Unknown   uint64            // frames without a name
}

// Calls is a dynamic call graph of a Process, as one engine saw it on one basis.
type Calls struct {
	Engine string // "page", "hotspot", …
	Basis  calls.Basis
	Rate   calls.Rate   // the last one of the window, as the budget may have changed it; zero where calls were not sampled in bursts
	Graph  *calls.Graph // never nil
	// Intervals are those of edges whose weights are estimated; nil where they are counted, or numbers of samples.
	Intervals map[calls.Edge]calls.Interval
}
