package profile

import (
	"time"

	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// A Profile is a closed window: what was recorded between Start and Start+Duration.
type Profile struct {
	Start       time.Time     // wall clock, for display; order and length come from CLOCK_MONOTONIC
	Duration    time.Duration // length of the window
	Period      time.Duration // CPU time per sample
	Event       string        // the sampled event: "cpu-clock"
	Unit        Unit          // unit of the threads' trees
	Processes   []*Process    // ordered by PID, then start time, then exec count
	Counts      Counts        // counts of this window's samples
	EventCounts EventCounts   // counts of this window's events, all kinds together
	Comments    []string      // version, kernel, and what a reader must know
	Followed    string        // the method of which Process.Slow has the slowest invocations; "" if none was followed
	// Course is how many samples were taken in each CourseStep since Start, up to the last one, but
	// no longer than a minute. Files and the history do not have it.
	Course []uint16
}

// CourseStep is the length of a step in Profile.Course.
const CourseStep = 20 * time.Millisecond

// A Unit is what the trees of threads count.
type Unit uint8

const (
	Samples    Unit = iota // ticks of the sampled event
	CallCounts             // calls of the innermost method: every call, unless records were lost
)

// A Process is one process in a Profile.
type Process struct {
	PID        int
	Comm       string // name of the thread group leader
	Runtime    string // "hotspot", or "" for none
	VM         string // the runtime's version for display, or ""
	Service    string // systemd unit, application of a JVM, container id or comm: the bounded name for metrics
	Executable symbol.Mapping
	Labels     []Label  // labels that the user gave it, by name, each once
	Notes      []string // what a reader of this process's part must know
	// Extents say how much there was to observe and how much of it was, one for each subject for
	// which that is known.
	Extents  []Extent
	Threads  []*Thread
	Contexts *Contexts // nil if every stack was walked
	// Calls are the call graphs, one for each engine and basis. Exact profiles have whole contexts
	// instead: see Profile.Unit.
	Calls []*Calls
	// Inlining is what the VM's inliner decides by; nil unless calls were estimated.
	Inlining *Inlining
	// Versions are the code versions that were sampled, and others of the same methods, by method
	// and age.
	Versions []Version
	// Events are the recorded events, one entry for each kind that was requested.
	Events []*Events
	// Slow are the slowest invocations of the method that was followed, of those that ended in the
	// window. An invocation is in one of several consecutive windows, with all that its thread did
	// since it began.
	Slow []SlowCall
	// Course is Profile.Course of this process; nil if the window had many other processes before.
	Course []uint16
}

// A Label is a word of the user about a process: team, checkout.
type Label struct{ Name, Value string }

// A Thread is one thread in a Process, with its calling context tree in the profile's Unit. A
// thread has several entries if its contexts differ in certainty, and one more for samples taken at
// a safepoint if safepoints are recorded.
type Thread struct {
	TID     int
	Name    string
	Stopped bool // sampled while the VM had stopped its Java threads
	Context Certainty
	Tree    *cct.Tree[symbol.Symbol]
	// SampleTime is the CPU time that one sample of the tree stands for, in ns, so that samples add
	// up to what the scheduler counted. 0 stands for Profile.Period.
	SampleTime float64
	// Unseen is CPU time of the thread that no sample stands for, and UnseenIn the frame that
	// stands for it: Waking or NotSampled.
	Unseen   time.Duration
	UnseenIn symbol.Symbol
}

// Frames that stand for CPU time without samples.
var (
	// Waking is what the kernel does to put a thread on a CPU, and to set the timer that wakes it:
	// see package cputime.
	Waking = symbol.Intern(symbol.Frame{Function: "[waking]", SystemName: "[waking]", Kind: symbol.KindKernel})
	// NotSampled stands for threads that ran and were not sampled.
	NotSampled = symbol.Intern(symbol.Frame{Function: "[not sampled]", SystemName: "[not sampled]",
		Kind: symbol.KindMarker})
)

// RareStacks is the name of Rare, which stands for the contexts that a bounded tree has no room
// for: what they weigh counts for it, below their nearest caller that is kept.
const RareStacks = "[rare stacks]"

// Rare is the frame that stands for contexts that are left out.
var Rare = symbol.Intern(symbol.Frame{Function: RareStacks, SystemName: RareStacks, Kind: symbol.KindMarker})

// Time is the CPU time in ns that n of the thread's samples stand for, given Profile.Period.
func (t *Thread) Time(n uint64, period time.Duration) float64 {
	if t.SampleTime > 0 {
		return float64(n) * t.SampleTime
	}
	return float64(n) * float64(period)
}

// CPUTime is all CPU time of the thread in ns, given Profile.Period.
func (t *Thread) CPUTime(period time.Duration) float64 {
	sum := float64(t.Unseen)
	if t.Tree != nil {
		sum += t.Time(t.Tree.Total(), period)
	}
	return sum
}
