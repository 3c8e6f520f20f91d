package profile

import "time"

// Stats is the agent's own health. Counters run since the agent started and never decrease; gauges
// are values at the time of the call. The receiver owns a Stats, its maps included.
//
// Maps by cause or reason have every known key from the start, with the value 0, so that an alert
// can watch a series before its first failure. Their keys are the agent's own words, never text
// from a target, except in Services and Workloads.
type Stats struct {
	Ready  bool          // programs are loaded and attached, and their records are processed
	Uptime time.Duration // since the agent started, by CLOCK_MONOTONIC

	// Kernel side.
	// counter: time in the sampling programs, all CPUs together; probes of calls and events
	// excluded
	BPFTime  time.Duration
	BPFRuns  uint64 // counter: program runs in BPFTime; at most one per tick
	MapBytes uint64 // gauge: kernel memory of BPF maps, ring buffer included

	// Ring buffer.
	RingSize     uint64        // gauge: capacity in bytes
	RingBytes    uint64        // counter: bytes of samples received
	ReaderLag    time.Duration // gauge: age of the oldest record when the ring was last drained
	ReaderPauses uint64        // counter: times that the reader slept because a record was still being written
	FlushesCut   uint64        // counter: times that it gave up waiting for such a record

	WalksCut        uint64 // counter: stacks whose walk took too long and was ended
	StacksDisplaced uint64 // counter: stacks kept for partial walks that were evicted by another thread's

	// Unwind tables of native code without frame pointers.
	UnwindFrames  uint64 // counter: frames whose caller a table led to
	UnwindLookups uint64 // counter: of these, the ones whose rule was not known from before
	UnwindTables  int    // gauge: tables in the kernel
	UnwindBytes   uint64 // gauge: their kernel memory
	// UnwindLosses counts, by cause, walks that tables could not help, and files, processes and
	// requests that got none.
	UnwindLosses map[string]uint64

	// Targets. The runtime "" stands for processes without a managed runtime.
	Processes      map[string]int   // gauge: live processes, by runtime
	Services       map[string]int   // gauge: live processes, by Process.Service; keys are hostile text
	Workloads      map[Workload]int // gauge: live processes, by where they run; hostile text
	ThreadsRefused uint64           // counter: Java threads that did not fit into the map of threads
	// ThreadEndsLost counts the ends of Java threads that were not reported; what they allocated
	// last is in no total.
	ThreadEndsLost   uint64
	ProcessesRefused uint64 // counter: selected processes that did not fit into the map of processes
	Quarantined      int    // gauge: processes left alone for a while because a read hung or failed
	StuckReads       int    // gauge: reads of targets that exceeded their deadline and have not returned yet
	Reads            uint64 // counter: successful reads of targets
	// ReadFailures counts the failed reads of targets, by cause: gone, denied, timeout, malformed,
	// …
	ReadFailures map[string]uint64

	// Failures counts panics of the agent while it handled a process, by stage. Each panic costs
	// that process the stage, and nothing else.
	Failures map[string]uint64

	// Names.
	Frames    uint64 // counter: resolved frames; frames that are cached from earlier samples are not counted
	CodeLoads uint64 // counter: compilations that processes announced
	// EventsDropped counts the announcements of code and processes that did not fit into the ring,
	// or had no scratch space.
	EventsDropped uint64
	Redefined     uint64 // counter: methods that were found to be other methods than before, as classes were redefined
	MethodMaps    int    // gauge: entries in the method maps of all processes
	MethodMapsMax int    // gauge: bound of MethodMaps

	Ticks  bool        // CPUs tick: CPU time or calls are sampled
	Time   bool        // CPU time is sampled
	Calls  *CallStats  // nil if calls are not sampled
	Events *EventStats // nil if events are not recorded
}

// A Workload is where a process of a service runs, as far as its cgroup, host name and environment
// say. What is not known is empty.
type Workload struct {
	Service     string // as in Process
	ContainerID string // first 12 digits
	PodUID      string
	Pod         string
	Namespace   string
	Main        string // main class or jar of a JVM
}

// EventStats is the state of event recording. The EventCounts run since the agent started, all
// kinds together.
type EventStats struct {
	Kinds []EventKind // recorded kinds, in their order
	// Wanted and Observed are counters by kind, summed over the libraries that have probes for it:
	// for how long events were requested, and for how long they were observed. The difference is
	// time in which the probes would have cost too much.
	Wanted, Observed map[string]time.Duration
	EventCounts
}

// CallStats is the state of call sampling. Counters run since the agent started, as do those in the
// comments of a profile.
//
//	Attempted == Delivered + sum(Dropped)   in the kernel, and windows of breakpoints
//	Delivered == Folded + sum(Discarded)    in user space
type CallStats struct {
	Attempted uint64            // counter: calls that engines sampled
	Delivered uint64            // counter: of these, received
	Dropped   map[string]uint64 // counter: lost in the kernel, by cause
	Folded    uint64            // counter: calls in a graph, or in the input of an estimate
	Discarded map[string]uint64 // counter: received calls that are in neither, by cause
	Hits      uint64            // counter: executions of probes
	Refused   uint64            // counter: executions of probes that were not armed
	Bursts    uint64            // counter: armed bursts
	Skipped   uint64            // counter: ticks that could not arm a burst

	// Watches counts watches of breakpoints by outcome. It is nil if no engine that runs can set
	// breakpoints.
	Watches map[string]uint64
	// BusyThreads counts threads that were left out of watches, because somebody else uses their
	// debug registers.
	BusyThreads uint64

	Budget    float64                  // gauge: share of the processes' CPU time that sampling may take
	GuestTime time.Duration            // counter: CPU time of the processes whose calls are sampled
	Costs     map[string]time.Duration // counter: CPU time that sampling took from them, by engine
	Rates     map[string]Rate          // gauge: current rate, by engine; in a pause, the rate before it

	// Credibility of the call counters of VMs, by Process.Service: of the VM whose counters differ
	// most from observed calls. Services without observations are missing.
	Credibility map[string]Credibility
}

// Cost is the CPU time that all engines took from processes.
func (s *CallStats) Cost() (sum time.Duration) {
	for _, cost := range s.Costs {
		sum += cost
	}
	return sum
}
