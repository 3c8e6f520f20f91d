package profile

import (
	"time"

	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// Events are the events of one kind in one process.
type Events struct {
	Kind EventKind
	Tree *cct.Tree[symbol.Symbol] // contexts of the rows, weighted by observed events
	Rows []EventRow               // ordered by context, then thread, then labels
	// Basis explains how the values were obtained and what a reader must know of them, one sentence
	// each.
	Basis    []string
	Coverage *Coverage
	Times    []ThreadTime `json:",omitempty"` // OffCPU, where it is known: of each thread once
	Lanes    *Lanes       `json:",omitempty"` // OffCPU, Wall: what threads did over time
}

// InStep is a sentence of Basis: how much each site has allocated is not known within an interval.
const InStep = "sites of allocations are observed in step with the ends of the buffers that threads allocate in, so " +
	"that some may be observed too often, and others " +
	"too seldom; the total is right"

// OneSite is a sentence of Basis: of a thread that allocates at several sites in step with its
// buffers, one may be all that is observed.
const OneSite = "allocations were observed at one site only, where buffers of the same length ended: if a thread " +
	"repeats several sites in step with its buffers, " +
	"the others are not seen; the total is right"

// EndedThreads is the TID of a ThreadTime that is the sum of all threads that ended in the window.
const EndedThreads = 0

// A ThreadTime is how long a thread existed in a window, and how much of that it was on a CPU, as
// the scheduler tells.
type ThreadTime struct {
	TID      int
	Name     string
	Wall, On time.Duration
	// Seen is the row of a short wait in which the thread was when the window ended, from 1; 0 if
	// it was in none whose stack is known. The end comes at any time, so this is a sample of the
	// thread's short waits.
	Seen int `json:",omitempty"`
}

// DrawSquares is the index in the values of OffCPU and Wall of the sum of the squares of what the
// drawn waits, or samples, of a row stand for, in ns². It is the variance of the row's time, and 0
// if that is exact. Files have LabelDraw instead.
const DrawSquares = 2

// Values of EventLabels.Value of OffCPU and Wall, "" for time that is exact.
const (
	// Drawn says that every short wait was drawn, or every sample taken, by itself: so the sum of
	// the rows is an estimate, too.
	Drawn   = "drawn"
	Divided = "divided" // the scheduler counted the sum of a thread's rows; the draws say in which parts it is divided
)

// An EventRow sums up the events of one thread in one context with the same labels.
type EventRow struct {
	Context cct.NodeID
	TID     int
	Thread  string // the thread's name
	EventLabels
	Events uint64                  // observed events, from which Values are estimated
	Values [MaxEventValues]float64 // as EventKind.Values lists them; estimates, so not whole numbers
}

// EventLabels distinguish rows of one context. Labels that a kind does not use are empty. Except
// for Offset, all are text that the target may choose.
type EventLabels struct {
	// Class is the class of the object: java.lang.String, byte[]; "" if unknown. OffCPU, Wall: who
	// ended the wait: a thread, or what the kernel was at.
	Class string
	// Place is where the object or data address is: young, old, humongous, stack, code, native; ""
	// if unknown. OffCPU, Wall: state of the thread.
	Place string
	// Locks: spin, block, park, wait, enter; Pauses: the VM operation; Allocations:
	// ExactAllocations or ""; OffCPU, Wall: cause
	What      string
	Collector string // Pauses: the garbage collector that ran, such as G1 Young Generation; "" if none did
	// Faults: the field at Offset, "" if it has no name. OffCPU, Wall: the command of the process
	// of Class, "" if it is the same one. Locks: the method that had the lock meanwhile, "" if that
	// was not seen
	Field  string
	Offset int32  // Faults: offset of the address in the object, bytes. OffCPU, Wall: with Field, the pid
	Probe  string // Values: the probe's name
	// Values: a bucket, such as 16-31, or a text. Locks: the thread, or the group of threads, of
	// Field. OffCPU, Wall: Drawn, Divided or ""
	Value string
}

// Values of EventLabels.What whose rows are not part of the kind's sum.
const (
	ExactAllocations = "exact" // every object was counted
	WaitForWork      = "wait"  // Object.wait and the like, as idle pool threads do: no contention
)

// UnnamedCollector is EventLabels.Collector if a garbage collection ran and no memory manager was
// named, as in the short pauses of ZGC and Shenandoah.
const UnnamedCollector = "unknown"

// StillWaiting stands for the stack of a thread that has not gone on since it was first seen.
const StillWaiting = "[still waiting]"

// WokenBy begins the frame that is innermost of a wait whose waker is known: [woken by
// pool-1-thread-*]. The frames that follow it inwards are those of the waker, the other way round:
// its innermost frame comes first.
const WokenBy = "[woken by "

// NoSite is the only frame of allocated bytes that the VM counted and that no observed allocation
// stands for.
const NoSite = "[site not observed]"

// Apart reports whether rows with these labels are excluded from the kind's sum: exact counts of
// what other rows estimate, and waits for work.
func (k EventKind) Apart(l *EventLabels) bool {
	return k == Allocations && l.What == ExactAllocations || k == Locks && l.What == WaitForWork
}
