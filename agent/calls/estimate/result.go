package estimate

import (
	"github.com/vmprof-agent/vmprof-agent/agent/profile"
)

// A Result is the estimated call graph of one guest.
type Result struct {
	// Calls are ordered by caller, site, callee and basis; each combination is there once.
	Calls []Call
	// Rates are by CodeID.
	Rates       []Rate
	Credibility profile.Credibility

	network *network // for Plan
}

// A Call is an edge of the call graph.
type Call struct {
	// Caller is the innermost method at the site, whether it was inlined or not. Its Method is NoMethod for calls by
	// the VM.
	Caller Place
	Callee MethodID
	Rate   float64 // calls a second
	Basis  profile.Basis
	// Low and High are the ends of the 95 % interval of Rate: of what is uncertain in rates of codes, in how entries divide
	// among callers, and in the VM's counts. A basis that is wrong is not in them.
	Low, High float64
}

// A Rate says how often a Code is entered.
type Rate struct {
	PerSecond float64
	Variance  float64  // of its logarithm; +Inf if nothing is known
	Evidence  Evidence // what most of it follows from
}

// Evidence is a kind of fact that rates follow from.
type Evidence uint8

const (
	Nothing  Evidence = iota // the code was not seen at work
	Time                     // samples in its prologue and epilogue
	Profiles                 // what was counted in its callers or callees, and their rates
	Listened                 // breakpoints on it
	Counter                  // what was counted in itself, during the window
	evidences
)

// String is the name for people.
func (e Evidence) String() string {
	if e >= evidences {
		return "unknown"
	}
	return [...]string{"nothing", "time", "profiles", "breakpoints", "counters"}[e]
}
