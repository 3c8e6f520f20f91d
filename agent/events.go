package agent

import (
	"math"
	"time"

	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
)

// An EventKind is a kind of what happens in guests, beside their use of CPU time: events of the language, sampled at probes
// and mapped onto calling contexts (Inoue and Nakatani, OOPSLA 2009, section 5).
type EventKind uint8

// Kinds of events.
const (
	Allocations EventKind = iota // of objects
	Locks                        // acquisitions of monitors and of java.util.concurrent's locks, and waits for them
	Values                       // what a probe's operands were
	Pauses                       // the VM stopped its Java threads
	Faults                       // page faults: first touches of memory
	Cycles                       // of the CPU, and instructions
	EventKinds                   // how many there are
)

var eventKindNames = [EventKinds]string{"alloc", "lock", "value", "safepoint", "page-faults", "cpi"}

// String is the kind's name, as record -e has it.
func (k EventKind) String() string { return eventKindNames[k] }

// MarshalText has the name stand for the kind in JSON.
func (k EventKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// A ValueType is what one number of an event says, in pprof's words.
type ValueType struct{ Type, Unit string }

var eventValues = [EventKinds][]ValueType{
	Allocations: {{"alloc_objects", "count"}, {"alloc_space", "bytes"}},
	Locks:       {{"acquisitions", "count"}, {"contentions", "count"}, {"delay", "nanoseconds"}},
	Values:      {{"executions", "count"}, {"sum", "count"}},
	Pauses:      {{"pauses", "count"}, {"stopped", "nanoseconds"}},
	Faults:      {{"faults", "count"}},
	Cycles:      {{"cycles", "count"}, {"instructions", "count"}},
}

// Values are what the values of a row say, in their order. The caller must not change them.
func (k EventKind) Values() []ValueType { return eventValues[k] }

// Main is the index of the value that readers are to see first.
func (k EventKind) Main() int { return mainValues[k] }

var mainValues = [EventKinds]int{
	Allocations: 1, // bytes, as memory is what runs out
	Locks:       2, // delay
	Pauses:      1, // time stopped
}

// A Coverage says how much of the time and of the events a sum was observed in, and how far it may be off. Events are observed part
// of the time if their probes would cost too much otherwise. Values are scaled to all of the time, and to all events.
type Coverage struct {
	Time     time.Duration // for which events were to be observed
	Observed time.Duration // of that
	Slices   int           // that Observed is made of
	Missed   time.Duration // besides, before probes were attached: sums do not stand for it
	Lost     float64       // the share of the events, of all kinds together, that was lost on the way, in the worst window; 0 to 1

	// What the sum of the main value, without rows that stand apart, may be off by.
	Events uint64  // that it is made of
	Drawn  float64 // its variance, if one of so many events is drawn
	Cut    float64 // likewise, of what the ends of a window cut
	Chosen float64 // half of the 95 % interval, by the choice of slices; +Inf: there are too few to tell
	Bias   float64 // at most, in either direction and the same in all windows: of losses, and of what probes slow down
}

// Add adds the coverage of another window, or of another part of the same events.
func (c *Coverage) Add(o *Coverage) {
	c.Time += o.Time
	c.Observed += o.Observed
	c.Missed += o.Missed
	c.Slices += o.Slices
	c.Lost = max(c.Lost, o.Lost)
	c.Events += o.Events
	c.Drawn += o.Drawn
	c.Cut += o.Cut
	c.Chosen = math.Hypot(c.Chosen, o.Chosen) // windows vary independently
	c.Bias += o.Bias
}

// Within is half of the 95 % interval of the sum. +Inf: there are too few slices to tell; 0: it is exact.
func (c *Coverage) Within() float64 {
	const normal95 = 1.96
	drawn := 0.0
	if c.Drawn > 0 {
		drawn = studentT(max(int(c.Events)-1, 1)) * math.Sqrt(c.Drawn)
	}
	return math.Hypot(c.Chosen, math.Hypot(drawn, normal95*math.Sqrt(c.Cut))) + c.Bias
}

// Partial says that part of the time was not observed. Some hundredths of a second in which probes came and went are none.
func (c *Coverage) Partial() bool { return c != nil && c.Time-c.Observed > 2*checkInterval }

// Share is the part of the time that was observed, 0 to 1.
func (c *Coverage) Share() float64 {
	if c == nil || c.Time <= 0 {
		return 1
	}
	return min(c.Observed.Seconds()/c.Time.Seconds(), 1)
}

// Events are those of one kind in one process. They never change.
type Events struct {
	Kind EventKind
	Tree *cct.Tree[symbolize.Symbol] // contexts of the rows; the weights are observed events
	Rows []EventRow                  // by context, then thread, then labels
	// Basis says how the values were come by, and what a reader must know of them, one sentence each.
	Basis    []string
	Coverage *Coverage
}

// MaxEventValues bounds Kind.Values.
const MaxEventValues = 3

// An EventRow are the events of one thread in one context with the same labels.
type EventRow struct {
	Context cct.NodeID
	TID     int
	Thread  string // its name
	EventLabels
	Events uint64                  // that were observed: the values are estimated from so many
	Values [MaxEventValues]float64 // as Kind.Values says; estimates, so not whole numbers
}

// EventLabels tell rows of one context apart. What a kind has no use for is empty. All but Offset are hostile text.
type EventLabels struct {
	Class     string // of the object: java.lang.String, byte[]; "" if unknown
	Place     string // of the object or the data address: young, old, humongous, stack, code, native; "" if unknown
	What      string // Locks: spin, block, park, wait, enter; Pauses: the VM's operation; Allocations: "exact", or ""
	Collector string // Pauses: what collected garbage meanwhile, such as G1 Young Generation; "" if nothing did
	Field     string // Faults: the field at Offset, "" if it has no name
	Offset    int32  // Faults: of the address in the object, bytes
	Probe     string // Values: which one
	Value     string // Values: a bucket, such as 16-31, or a text
}

// EventLabels.What of rows that stand apart.
const (
	ExactAllocations = "exact" // every object was counted
	WaitForWork      = "wait"  // as threads of a pool do: it is no contention
)

// Apart says that rows with such labels are no part of the kind's sum: they count what others estimate, or are waits for work.
func (k EventKind) Apart(l *EventLabels) bool {
	return k == Allocations && l.What == ExactAllocations || k == Locks && l.What == WaitForWork
}

// UnnamedCollector is EventLabels.Collector where garbage was collected and no memory manager was named, as in the short
// pauses of ZGC and Shenandoah.
const UnnamedCollector = "unknown"
