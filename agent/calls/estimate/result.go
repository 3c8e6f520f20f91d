package estimate

import (
	"cmp"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"
)

// A Result is the estimated call graph of one guest.
type Result struct {
	// Calls are ordered by caller, site, callee and basis; each combination occurs once.
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
	// Low and High are the ends of the 95 % interval of Rate. It covers the uncertainty of the codes' rates, of how entries divide among
	// callers, and of the VM's counts. It does not cover a wrong basis.
	Low, High float64
}

// A Rate is how often a Code is entered.
type Rate struct {
	PerSecond float64
	Variance  float64  // of its logarithm; +Inf if nothing is known
	Evidence  Evidence // the kind of fact that it mostly follows from
}

// Evidence is a kind of fact that rates follow from.
type Evidence uint8

const (
	Nothing  Evidence = iota // the code was not sampled
	Time                     // samples in its prologue and epilogue
	Profiles                 // counts in its callers or callees, and their rates
	Listened                 // breakpoints on it
	Counter                  // counts in the code itself, during the window
	evidences
)

// A callSet sums up rates of calls.
type callSet map[callKey]interval

// An interval is a rate with its lower and upper bound.
type interval struct{ rate, low, high float64 }

type callKey struct {
	caller Place
	callee MethodID
	basis  profile.Basis
}

func newCalls() callSet { return callSet{} }

// add adds a rate whose logarithm has that variance, and that is not higher than most; 0: whatever it is. A variance that says nothing makes the
// rate unmeasured. Ends of intervals add up as if all
// errors had the same direction.
func (s callSet) add(caller Place, callee MethodID, rate, variance, most float64, basis profile.Basis) {
	if rate > 0 && finite(rate) {
		f := factor(variance)
		if f == widest {
			basis = profile.Unmeasured
		}
		key := callKey{caller, callee, basis}
		high := rate * f
		if most > 0 {
			high = min(high, max(most, rate))
		}
		sum := s[key]
		s[key] = interval{sum.rate + rate, sum.low + rate/f, sum.high + high}
	}
}

func (s callSet) sorted() []Call {
	list := make([]Call, 0, len(s))
	for k, sum := range s {
		list = append(list, Call{k.caller, k.callee, sum.rate, k.basis, sum.low, sum.high})
	}
	slices.SortFunc(list, func(a, b Call) int {
		return cmp.Or(cmp.Compare(a.Caller.Method, b.Caller.Method), cmp.Compare(a.Caller.BCI, b.Caller.BCI),
			cmp.Compare(a.Callee, b.Callee), cmp.Compare(a.Basis, b.Basis))
	})
	return list
}

// onlyCaller is the share from which a caller counts as the only one.
const onlyCaller = 0.99

// physical adds the calls of one code by another. The entries that a link makes divide among its call sites by their samples and profiles.
func (n *network) physical(in *Input, rates []Rate, to callSet) {
	for i := range n.links {
		l := &n.links[i]
		if in.Codes[l.to].Loop {
			continue // no call leads there
		}
		rate := rates[l.to].PerSecond * l.share
		perEntry := 0.
		for _, c := range l.calls {
			perEntry += n.calls[c].perEntry
		}
		weight := func(c *call) float64 {
			w := c.samples
			if perEntry > 0 {
				w += profileWeight * c.perEntry / perEntry
			}
			return w
		}
		total := 0.
		for _, c := range l.calls {
			total += weight(&n.calls[c])
		}
		for _, j := range l.calls {
			c := &n.calls[j]
			if total > 0 {
				part := weight(c) / total
				of := rates[l.to]
				to.add(c.place(in), in.Codes[c.callee].Method, rate*part, of.Variance+n.shareVariance(l.to, l.share*part),
					of.PerSecond*factor(of.Variance), profile.Estimated)
			}
		}
	}
}

// place returns where a call is made, as far as known.
func (c *call) place(in *Input) Place {
	switch {
	case c.caller == VM:
		return Place{NoMethod, -1}
	case len(c.site) == 0:
		return Place{in.Codes[c.caller].Method, -1}
	}
	return c.site[0]
}
