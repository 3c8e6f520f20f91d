package agent

import (
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/calls"
	"github.com/vmprof-agent/vmprof-agent/agent/calls/estimate"
)

// Stats is the agent's own health. Counters run since the agent started and never go back; gauges are what was
// true when Stats was asked. Whoever receives a Stats owns it, maps included.
//
// Maps keyed by cause or reason hold every known key from the start, with zero: a series that appears only at its
// first failure cannot be alerted on. Keys are the agent's own words, never text from a target, except in
// Services.
type Stats struct {
	Ready  bool          // programs are loaded and attached, and what they tell is recorded
	Uptime time.Duration // since the agent started, by CLOCK_MONOTONIC

	// The kernel side.
	BPFTime  time.Duration // counter: time spent in the sampling programs, all CPUs together; probes of calls and events are not in it
	BPFRuns  uint64        // counter: runs that BPFTime covers; at most one per tick
	MapBytes uint64        // gauge: kernel memory held by BPF maps, the ring included

	// The ring between kernel and user space.
	RingSize  uint64        // gauge: capacity in bytes
	RingBytes uint64        // counter: bytes of samples received through it
	ReaderLag time.Duration // gauge: age of the oldest record when the ring was last drained

	ReaderPauses uint64 // counter: times that the reader slept as a record was still being written
	FlushesCut   uint64 // counter: times that it did not wait any longer for such a record to end

	StacksDisplaced uint64 // counter: stacks kept for partial walks that made room for another thread's

	// Targets. The runtime "" stands for processes without a managed runtime.
	Processes map[string]int // gauge: known and alive, by runtime
	Services  map[string]int // gauge: known and alive, by Process.Service; names are hostile text
	// ThreadsRefused is a counter: times that a Java thread found no room among those that are known by their ids.
	ThreadsRefused uint64
	// ProcessesRefused is a counter: processes that were to be sampled and found no room among the chosen ones.
	ProcessesRefused uint64
	Quarantined      int               // gauge: processes that are left alone for a while because a read hung or failed
	StuckReads       int               // gauge: reads of targets that did not return in time, and have not yet
	Reads            uint64            // counter: reads of targets that succeeded
	ReadFailures     map[string]uint64 // counter: reads of targets that failed, by cause: gone, denied, timeout, malformed, …

	// Failures are panics of the agent while it handled a process: a counter by what it did then. Each costs that process what
	// is done at that stage, and nobody else anything.
	Failures map[string]uint64

	// Names.
	Frames        uint64 // counter: frames that were looked up; those still known from earlier samples are not
	CodeLoads     uint64 // counter: compilations that guests announced
	EventsDropped uint64 // counter: announcements of code and processes that found no room in the ring, or none to be written in
	Redefined     uint64 // counter: methods of guests that were met as other methods than before, as classes were redefined
	MethodMaps    int    // gauge: entries in the method maps of all guests
	MethodMapsMax int    // gauge: entries that the method maps of all guests may hold

	Ticks  bool        // CPUs tick: there are samples, of time or for calls
	Time   bool        // where time goes is sampled
	Calls  *CallStats  // nil if calls are not sampled
	Events *EventStats // nil if events are not recorded
}

// EventStats is how the recording of events fares. What EventCounts accounts for is counted since the agent started, of all
// kinds together.
type EventStats struct {
	Kinds []EventKind // that are recorded, in their order
	// Wanted is for how long events were to be observed, by kind and summed over the libraries that have probes for them;
	// Observed is for how long they were. The rest is time in which probes would have cost too much. Counters.
	Wanted, Observed map[string]time.Duration
	EventCounts
}

// CallStats is how the sampling of calls fares. Counters run since the agent started: so does what a profile's comments say
// of them, whatever its window.
//
//	Attempted == Delivered + sum(Dropped)   in the kernel, and what windows of breakpoints observed
//	Delivered == Folded + sum(Discarded)    in the agent
type CallStats struct {
	Choices   []calls.Choice
	Attempted uint64            // counter: calls that engines sampled
	Delivered uint64            // counter: of these, received
	Dropped   map[string]uint64 // counter: of these, lost before that, by cause
	Folded    uint64            // counter: received calls that are in a graph, or in what an estimate is made of
	Discarded map[string]uint64 // counter: received calls that are in none, by cause
	Hits      uint64            // counter: executions of probes in guests
	Refused   uint64            // counter: executions of probes that nothing had been armed for
	Bursts    uint64            // counter: bursts that were armed
	Skipped   uint64            // counter: ticks at which none could be armed

	Budget    float64                  // gauge: share of the guests' CPU time that sampling may take
	GuestTime time.Duration            // counter: CPU time of the guests whose calls are sampled
	Costs     map[string]time.Duration // counter: CPU time of theirs that sampling took, by engine
	Rates     map[string]calls.Rate    // gauge: how much is sampled now, by engine; in a pause, what was sampled before it

	// Credibility of what the engine hotspot is told by VMs, by Process.Service: of the VM whose counters are furthest
	// from what was heard. Those of which nothing was heard are missing.
	Credibility map[string]estimate.Credibility
}

// Cost is the CPU time of guests that all engines took.
func (s *CallStats) Cost() (sum time.Duration) {
	for _, cost := range s.Costs {
		sum += cost
	}
	return sum
}
