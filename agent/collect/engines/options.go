package engines

import (
	"slices"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/budget"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// Options are how calls are sampled. The zero value selects engines automatically and keeps to
// budget.DefaultShare.
type Options struct {
	Engine  string       // calls.Auto or "", or one of Names
	Budget  float64      // share of the processes' CPU time for sampling; 0 means budget.DefaultShare
	Rate    profile.Rate // fixed fields; those that are 0 follow from the budget. If none is 0, there is no budget
	Logical bool         // include inlined calls
	Exact   Exact        // count every call of one JVM instead
	// ExactObjects also counts the objects that are allocated in each context: with ExactContexts.
	ExactObjects bool
	GuestSocket  string // where cooperating processes connect; "" means DefaultGuestSocket
}

// DefaultGuestSocket is the default path where cooperating processes connect.
const DefaultGuestSocket = "/run/vmprof-agent/guest.sock"

// Exact is what is recorded of every call of one JVM.
type Exact uint8

const (
	NotExact      Exact = iota
	ExactContexts       // the complete calling context tree of each thread
	ExactEdges          // the call graph, with call sites
	ExactCounters       // the call graph from the JVM's own counters
)

// WithDefaults fills in unset options.
func (o Options) WithDefaults() Options {
	if o.Engine == "" {
		o.Engine = calls.Auto
	}
	if o.Budget == 0 {
		o.Budget = budget.DefaultShare
	}
	if o.GuestSocket == "" {
		o.GuestSocket = DefaultGuestSocket
	}
	return o
}

// Interrupting reports whether an engine may run whose programs interrupt others; o may be nil.
func (o *Options) Interrupting() bool {
	return o != nil && o.Exact == NotExact && slices.ContainsFunc(engineTable(*o),
		func(s engineSpec) bool { return s.interrupting && s.declined(*o) == "" })
}

// Frequency is the default sampling frequency in Hz when calls are recorded: the estimates of
// engine hotspot use stacks. A tick takes 10 to 20 us of a process's time. So this leaves the
// larger part of the budget to windows, which give more information.
func Frequency(budget float64) int {
	const atOnePercent, least, most = 149, 49, 997
	return min(max(int(budget*100*atOnePercent), least), most)
}
