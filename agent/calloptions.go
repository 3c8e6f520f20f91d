package agent

import (
	"slices"

	"github.com/vmprof-agent/vmprof-agent/agent/calls"
	"github.com/vmprof-agent/vmprof-agent/agent/profile"
)

// CallOptions say how calls are sampled. The zero value chooses engines and keeps to DefaultBudget.
type CallOptions struct {
	Engine      string       // calls.Auto or "", or one of CallEngines
	Budget      float64      // share of the guests' CPU time that sampling may take; 0 means DefaultBudget
	Rate        profile.Rate // what is fixed; fields that are 0 follow from the budget. If none is 0, there is no budget
	Logical     bool         // calls that a VM inlined, too
	Exact       Exact        // count every call of one JVM instead
	GuestSocket string       // where cooperating guests connect; "" means DefaultGuestSocket
}

// Defaults of CallOptions.
const (
	DefaultBudget      = 0.01
	DefaultGuestSocket = "/run/vmprof-agent/guest.sock"
)

// withDefaults fills in what was left open.
func (o CallOptions) withDefaults() CallOptions {
	if o.Engine == "" {
		o.Engine = calls.Auto
	}
	if o.Budget == 0 {
		o.Budget = DefaultBudget
	}
	if o.GuestSocket == "" {
		o.GuestSocket = DefaultGuestSocket
	}
	return o
}

// interrupting reports whether an engine may sample whose programs interrupt others; o may be nil.
func (o *CallOptions) interrupting() bool {
	return o != nil && o.Exact == NotExact && slices.ContainsFunc(engineTable(*o), func(s engineSpec) bool { return s.interrupting && s.declined(*o) == "" })
}

// CallFrequency is how often to sample for calls unless that was said: what the engine hotspot estimates comes from
// stacks. A tick takes some 10 to 20 us of a guest, so that this leaves the larger part of the budget to windows, which
// tell more.
func CallFrequency(budget float64) int {
	const atOnePercent, least, most = 149, 49, 997
	return min(max(int(budget*100*atOnePercent), least), most)
}
