package profile

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/agent/model/cause"
)

// An EventKind is a kind of runtime event, sampled at probes and attributed to calling contexts
// (Inoue and Nakatani, OOPSLA 2009, section 5). Files and histories have its name or its number:
// new ones come last.
type EventKind uint8

const (
	Allocations EventKind = iota // object allocations
	Locks                        // contended acquisitions of monitors and java.util.concurrent locks, and other waits
	Values                       // operands of a probe
	Pauses                       // safepoint pauses
	Faults                       // first-touch page faults
	Cycles                       // CPU cycles and instructions
	OffCPU                       // time of threads that use no CPU
	Wall                         // all time of threads: on the CPU and off it
	Barriers                     // stores of references into old objects
	Exceptions                   // exceptions that were created
	EventKinds                   // number of kinds
)

// A Description is what people read of a kind of events, and what a row of it has. All lists of
// kinds come from these.
type Description struct {
	Name   string // as -e takes it, and in file names
	Help   string // what it records, in a few words
	Needs  string // flags of record that it needs besides -e
	Events string // what happened, in the plural: allocations
	View   string // name of its view in report
	Title  string // what its main values are: Allocated bytes
	Values []ValueType
	Main   int      // index in Values of the value to show first
	Leaf   []string // labels that make the innermost frame of a graph
	// Telling says that its sum is compared when a service behaves otherwise than before.
	Telling bool
	Page    Page
}

// A Page is what the agent's page says of a kind.
type Page struct {
	Title  string // name of the page
	About  string // what it shows
	Things string // what its main values are, in a sentence
	Lack   string // what an agent does not do that records none
	Column string // title of the column with main values
	Whole  string // what 100 % is, if that is not all of them
	Aside  string // events with this label are left out (EventLabels.What)
	Asides string // what these are
}

// A ValueType is the meaning and the unit of a value, in pprof's words.
type ValueType struct{ Type, Unit string }

// MaxEventValues bounds the length of Description.Values.
const MaxEventValues = 3

var descriptions = [EventKinds]Description{
	Allocations: {
		Name: "alloc", Help: "allocated objects", Events: "allocations", View: "allocs", Title: "Allocated bytes",
		Values:  []ValueType{{"alloc_objects", "count"}, {"alloc_space", "bytes"}},
		Main:    1, // bytes, as memory is what runs out
		Leaf:    []string{"class"},
		Telling: true,
		Page: Page{Title: "Allocations", About: "allocated objects, by class and method", Things: "allocated bytes",
			Lack: "allocations are not recorded", Column: "Allocated", Aside: ExactAllocations,
			Asides: "exact counts, which have no stacks"},
	},
	Locks: {
		Name: "lock", Help: "waits for locks", Events: "locks", View: "locks", Title: "Delay by locks",
		Values:  []ValueType{{"acquisitions", "count"}, {"contentions", "count"}, {"delay", "nanoseconds"}},
		Main:    2,
		Leaf:    []string{"kind", "class"},
		Telling: true,
		Page: Page{Title: "Locks", About: "who waits for locks, and for how long", Things: "delay by locks",
			Lack: "locks are not recorded", Column: "Delay", Aside: WaitForWork, Asides: "waits for work",
			Whole: "100 % is one thread that waits all the time. Waits for work are not included."},
	},
	Values: {
		Name: "value", Help: "values at a --probe", Needs: "--probe=SPEC", Events: "values", View: "values",
		Title:  "Values at probes",
		Values: []ValueType{{"executions", "count"}, {"sum", "count"}},
		Leaf:   []string{"probe", "value"},
		Page: Page{Title: "Values", About: "values read at probes", Things: "executions of probes",
			Lack: "values are not recorded", Column: "Executions"},
	},
	Pauses: {
		Name: "safepoint", Help: "pauses of all Java threads", Events: "safepoints", View: "safepoints",
		Title:   "Safepoint pauses",
		Values:  []ValueType{{"pauses", "count"}, {"stopped", "nanoseconds"}},
		Main:    1, // time stopped
		Leaf:    []string{"kind"},
		Telling: true,
		Page: Page{Title: "Pauses", About: "safepoint pauses and their reasons", Things: "time stopped",
			Lack: "safepoints are not recorded", Column: "Stopped",
			Whole: "100 % is a VM that is stopped all the time."},
	},
	Faults: {
		Name: "page-faults", Help: "first touches of memory", Events: "page faults", View: "faults",
		Title:  "Page faults",
		Values: []ValueType{{"faults", "count"}},
		Leaf:   []string{"class"},
		Page: Page{Title: "Page faults", About: "first touches of memory", Things: "page faults",
			Lack: "page faults are not recorded", Column: "Faults"},
	},
	Cycles: {
		Name: "cpi", Help: "cycles per instruction; experimental, not verified on hardware", Events: "cycles",
		View: "cpi", Title: "CPU cycles",
		Values: []ValueType{{"cycles", "count"}, {"instructions", "count"}},
		Page: Page{Title: "Cycles", About: "CPU cycles and instructions", Things: "cycles",
			Lack: "cycles are not counted", Column: "Cycles"},
	},
	OffCPU: {
		Name: "offcpu", Help: "what threads wait for when they use no CPU", Events: "off-CPU time", View: "offcpu",
		Title:  "Off-CPU time",
		Values: []ValueType{{"waits", "count"}, {"offcpu", "nanoseconds"}},
		Main:   1,
		Leaf:   []string{"cause"},
		Page: Page{Title: "Off-CPU time", About: "what threads wait for", Things: "off-CPU time",
			Lack: "off-CPU time is not recorded", Column: "Off CPU", Aside: cause.Idle,
			Asides: "threads with nothing to do",
			Whole:  "100 % is one thread that is off the CPU all the time. Idle threads are not included."},
	},
	Wall: {
		Name: "wall", Help: "all time of threads: on the CPU, and off it by cause", Events: "wall time", View: "wall",
		Title:  "Wall time",
		Values: []ValueType{{"wall", "nanoseconds"}},
		Leaf:   []string{"cause"},
		Page: Page{Title: "Wall time", About: "what threads do all the time, on the CPU and off it",
			Things: "wall time", Lack: "wall time is not recorded", Column: "Wall", Aside: cause.Idle,
			Asides: "threads with nothing to do",
			Whole:  "100 % is one thread, all the time. Idle threads are not included."},
	},
	Barriers: {
		Name: "write-barrier", Help: "stores of references into old objects, with G1", Events: "write barriers",
		View: "barriers", Title: "Write barriers",
		Values: []ValueType{{"dirty_cards", "count"}},
		Leaf:   []string{"class"},
		Page: Page{Title: "Write barriers", About: "stores of references into old objects",
			Things: "cards made dirty", Lack: "write barriers are not recorded", Column: "Cards"},
	},
	Exceptions: {
		Name: "exceptions", Help: "exceptions with a stack trace, where they are created", Events: "exceptions",
		View: "exceptions", Title: "Exceptions",
		Values: []ValueType{{"exceptions", "count"}},
		Leaf:   []string{"class"},
		Page: Page{Title: "Exceptions", About: "exceptions, by class and by the method that creates them",
			Things: "exceptions", Lack: "exceptions are not recorded", Column: "Exceptions"},
	},
}

// Describe is what people read of the kind. The caller must not change it.
func (k EventKind) Describe() *Description { return &descriptions[k] }

// String is the kind as record -e takes it.
func (k EventKind) String() string { return descriptions[k].Name }

// MarshalText writes the kind's name, for JSON.
func (k EventKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (k *EventKind) UnmarshalText(text []byte) error {
	for kind := range EventKinds {
		if string(text) == kind.String() {
			*k = kind
			return nil
		}
	}
	return fmt.Errorf("unknown kind of events %.40q", text)
}

// Values are the types of a row's values, in order. The caller must not change them.
func (k EventKind) Values() []ValueType { return descriptions[k].Values }

// Main is the index in Values of the value to show first.
func (k EventKind) Main() int { return descriptions[k].Main }

// Flags are the flags of record that ask for the kind.
func (d *Description) Flags() string {
	if d.Needs != "" {
		return "-e " + d.Name + " " + d.Needs
	}
	return "-e " + d.Name
}
