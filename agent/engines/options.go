package engines

import (
	"slices"

	"github.com/vmprof-agent/vmprof-agent/agent/budget"
	"github.com/vmprof-agent/vmprof-agent/agent/calls"
	"github.com/vmprof-agent/vmprof-agent/agent/profile"
)

// Options say how calls are sampled. The zero value chooses engines and keeps to budget.DefaultShare.
type Options struct {
	Engine      string       // calls.Auto or "", or one of Names
	Budget      float64      // share of the guests' CPU time that sampling may take; 0 means budget.DefaultShare
	Rate        profile.Rate // what is fixed; fields that are 0 follow from the budget. If none is 0, there is no budget
	Logical     bool         // calls that a VM inlined, too
	Exact       Exact        // count every call of one JVM instead
	GuestSocket string       // where cooperating guests connect; "" means DefaultGuestSocket
}

// DefaultGuestSocket is where cooperating guests connect unless users say otherwise.
const DefaultGuestSocket = "/run/vmprof-agent/guest.sock"

// Exact says what is kept of every call of one JVM.
type Exact uint8

const (
	NotExact      Exact = iota
	ExactContexts       // the complete calling context tree of each thread
	ExactEdges          // the call graph, with the places of calls
	ExactCounters       // the call graph that the JVM's own code counts
)

// WithDefaults fills in what was left open.
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

// Interrupting reports whether an engine may sample whose programs interrupt others; o may be nil.
func (o *Options) Interrupting() bool {
	return o != nil && o.Exact == NotExact && slices.ContainsFunc(engineTable(*o), func(s engineSpec) bool { return s.interrupting && s.declined(*o) == "" })
}

// Frequency is the default sampling frequency in Hz when calls are recorded: the estimates of engine hotspot come from stacks. A
// tick takes 10 to 20 us of a guest's time. So this leaves the larger part of the budget to windows, which give more
// information.
func Frequency(budget float64) int {
	const atOnePercent, least, most = 149, 49, 997
	return min(max(int(budget*100*atOnePercent), least), most)
}
