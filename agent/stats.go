package agent

import "time"

// Stats is the agent's own health. Counters run since the agent started and never go back; gauges are what was
// true when Stats was asked. Whoever receives a Stats owns it, maps included.
//
// Maps keyed by cause or reason hold every known key from the start, with zero: a series that appears only at its
// first failure cannot be alerted on. Keys are the agent's own words, never text from a target, except in
// Services.
type Stats struct {
	Ready  bool          // programs are loaded and every CPU ticks
	Uptime time.Duration // since the agent started, by CLOCK_MONOTONIC

	// The kernel side.
	BPFTime  time.Duration // counter: time spent in the sampling programs, all CPUs together
	BPFRuns  uint64        // counter: runs that BPFTime covers; at most one per tick
	MapBytes uint64        // gauge: kernel memory held by BPF maps, the ring included

	// The ring between kernel and user space.
	RingSize  uint64        // gauge: capacity in bytes
	RingBytes uint64        // counter: bytes received through it
	ReaderLag time.Duration // gauge: age of the oldest record when the ring was last drained

	// Targets. The runtime "" stands for processes without a managed runtime.
	Processes    map[string]int    // gauge: known and alive, by runtime
	Services     map[string]int    // gauge: known and alive, by Process.Service; names are hostile text
	Quarantined  int               // gauge: processes that are left alone for a while because a read hung or failed
	Reads        uint64            // counter: reads of targets that succeeded
	ReadFailures map[string]uint64 // counter: reads of targets that failed, by cause: gone, denied, timeout, malformed, …

	// Names.
	Frames        uint64 // counter: frames that were looked up; those still known from earlier samples are not
	CodeLoads     uint64 // counter: compilations that guests announced
	EventsDropped uint64 // counter: announcements of code and processes that found the ring full
	MethodMaps    int    // gauge: entries in the method maps of all guests
	MethodMapsMax int    // gauge: entries that the method maps of all guests may hold
}
