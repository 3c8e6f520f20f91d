package agent

import (
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

// fixed is what people fixed of an engine's rate. Where every call of a burst traps there is no stride to choose.
func (o CallOptions) fixed(engine string) profile.Rate {
	r := o.Rate
	if engine == "listener" {
		r.Stride = 1
	}
	return r
}

// branches reports whether the engine branch may sample; o may be nil.
func (o *CallOptions) branches() bool {
	return o != nil && o.Exact == NotExact && o.Engine == "branch"
}

// unlimited tells whether all of an engine's rate is fixed, so that it has no budget.
func (o CallOptions) unlimited(engine string) bool {
	r := o.fixed(engine)
	return engine != "hotspot" && r.Hz > 0 && r.Stride > 0 && r.Samples > 0
}

// CallFrequency is how often to sample for calls unless that was said: what the engine hotspot estimates comes from
// stacks. A tick takes some 10 to 20 us of a guest, so that this leaves the larger part of the budget to windows, which
// tell more.
func CallFrequency(budget float64) int {
	const atOnePercent, least, most = 149, 49, 997
	return min(max(int(budget*100*atOnePercent), least), most)
}

// CallEngines are the names of all engines, in the order in which they are tried.
func CallEngines() []string {
	return []string{"page", "hotspot", "listener", "usdt", "branch"}
}
