package profile

import (
	"fmt"
	"math"

	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// Calls is a dynamic call graph of a Process, as one engine recorded it on one basis.
type Calls struct {
	Engine string // "page", "hotspot", …
	Basis  Basis
	Rate   Rate   // at the end of the window, as the budget may change it; zero if calls were not sampled in bursts
	Graph  *Graph // never nil
	// Intervals are those of edges whose weights are estimated; nil if weights are counts or
	// numbers of samples.
	Intervals map[Edge]Interval
}

// A Graph is a dynamic call graph. Its callers and callees are methods: their Line and Address are
// 0.
type Graph = cct.Graph[symbol.Symbol, Site]

// An Edge of a Graph.
type Edge = cct.Edge[symbol.Symbol, Site]

// A Site is the place of a call in its caller. Unknown fields are 0 and -1.
type Site struct {
	Line   int32 // in the caller's source file, 0 if unknown
	Offset int32 // bytecode index, or without bytecode the offset of the return address in the caller; -1 if unknown
}

// A Basis says where the weight of an edge comes from.
type Basis uint8

const (
	// Sampled weights are numbers of sampled calls out of an unknown total. For bursts that are
	// long enough they are the number of calls that the samples stand for, by the call rate within
	// their burst.
	Sampled Basis = iota
	// Counted weights cover every call: all were recorded, or the VM's own counters were read.
	Counted
	// Estimated weights follow from the time spent in callees and the VM's own counters: calls per
	// second times the length of the window.
	Estimated
	// Inferred weights are of calls that were inlined: they follow from what was compiled into the
	// caller.
	Inferred
	// Unmeasured calls were seen in stacks or in the code, and almost nothing is known of their
	// frequency. The weight is a lower bound.
	Unmeasured
)

// String is the basis as labels have it.
func (b Basis) String() string {
	return basisNames[min(b, Unmeasured)]
}

var basisNames = [...]string{"sampled", "counted", "estimated", "inferred", "unmeasured"}

// MarshalText writes the basis's name, for JSON.
func (b Basis) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (b *Basis) UnmarshalText(text []byte) error {
	for basis, name := range basisNames {
		if string(text) == name {
			*b = Basis(basis)
			return nil
		}
	}
	return fmt.Errorf("unknown basis of calls %.40q", text)
}

// An Interval contains the true number of calls with 95 % confidence.
type Interval struct{ Low, High float64 }

// Add adds the interval of other calls, assuming that the errors of both point in the same
// direction.
func (i Interval) Add(o Interval) Interval { return Interval{i.Low + o.Low, i.High + o.High} }

// Factor is the factor, at least 1, between the interval's geometric middle and its ends.
func (i Interval) Factor() float64 {
	if !(i.Low > 0) || !(i.High > i.Low) {
		return 1
	}
	return math.Sqrt(i.High / i.Low)
}

// FactorOf is the largest factor, at least 1, between n, which is in the interval, and the
// interval's ends. At the low end it is Factor, as nothing lies below.
func (i Interval) FactorOf(n float64) float64 {
	if n <= i.Low || !(i.Low > 0) {
		return i.Factor()
	}
	return max(i.High/n, n/i.Low, 1)
}

// A Burst is what one tick requests from the thread that it interrupts: Samples calls, Stride
// apart, the first after a random skip in [1..Stride] (Arnold & Grove, CGO 2005, section 4, figure
// 3). The zero value requests nothing.
type Burst struct {
	Stride  int // calls from one sample to the next, at least 1
	Samples int // calls to record after a tick, at least 1
}

// A Rate is how much an engine samples.
type Rate struct {
	Hz int // ticks per second of CPU time, on each CPU
	Burst
}

// String is the rate for display: "7x32 at 100 Hz".
func (r Rate) String() string { return fmt.Sprintf("%dx%d at %d Hz", r.Stride, r.Samples, r.Hz) }

// A Choice says whether an engine samples calls, and why.
type Choice struct {
	Engine string // "page", "hotspot", …
	Chosen bool
	Reason string // a clause: "this machine has no branch records: …"
	Socket bool   // VMs connect to the engine at the guests' socket: it works for those that reach it
}

// String is one line for display.
func (c Choice) String() string {
	if c.Chosen {
		return fmt.Sprintf("engine %s: used: %s", c.Engine, c.Reason)
	}
	return fmt.Sprintf("engine %s: not used: %s", c.Engine, c.Reason)
}

// A Credibility says how well a VM's own call counters agree with what breakpoints observed.
type Credibility struct {
	// Error is the median of |log(calls per entry by the VM's counters / by breakpoints)| over
	// pairs of caller and callee, weighted by breakpoint hits. It is NaN if no pair was observed
	// both ways.
	Error       float64
	Comparisons int // pairs that were compared
	// Credible says whether the estimate uses the counters. If not, it uses time and breakpoints
	// alone.
	Credible bool
	Why      string // a clause for display
}
