package estimate

import (
	"cmp"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
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
	// Caller is the innermost method at the site, whether it was inlined or not. Its Method is
	// NoMethod for calls by the VM.
	Caller Place
	Callee MethodID
	Rate   float64 // calls a second
	Basis  profile.Basis
	// Low and High are the ends of the 95 % interval of Rate. It covers the uncertainty of the
	// codes' rates, of how entries divide among callers, and of the VM's counts. It does not cover
	// a wrong basis.
	Low, High float64
}

// A Rate is how often a Code is entered.
type Rate struct {
	PerSecond float64
	Variance  float64  // variance of its logarithm; +Inf if nothing is known
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

// add adds a rate whose logarithm has that variance, and that is not higher than most; 0: whatever
// it is. A variance that says nothing makes the rate unmeasured. Ends of intervals add up as if all
// errors had the same direction.
func (s callSet) add(caller Place, callee MethodID, rate, variance, most float64, basis profile.Basis) {
	if !(rate > 0) || !finite(rate) {
		return
	}
	i, measured := newInterval(rate, variance, most)
	if !measured {
		basis = profile.Unmeasured
	}
	s.sum(callKey{caller, callee, basis}, i)
}

func (s callSet) sum(key callKey, i interval) { s[key] = s[key].plus(i) }

func (i interval) plus(other interval) interval {
	return interval{i.rate + other.rate, i.low + other.low, i.high + other.high}
}

// newInterval is the interval of a rate whose logarithm has that variance, and that is not higher
// than most, unless that is 0. measured is false if the variance says nothing.
func newInterval(rate, variance, most float64) (i interval, measured bool) {
	f := factor(variance)
	i = interval{rate, rate / f, rate * f}
	if most > 0 {
		i.high = min(i.high, max(most, rate))
	}
	return i, f < widest
}

// join adds calls that are not measured to the intervals of the same calls that are, if they are no
// more than these may be.
func (s callSet) join() {
	for key, unknown := range s {
		if key.basis != profile.Unmeasured {
			continue
		}
		for _, basis := range []profile.Basis{profile.Estimated, profile.Inferred} {
			to := callKey{key.caller, key.callee, basis}
			if known, ok := s[to]; ok && unknown.high <= known.high {
				s[to] = interval{known.rate, known.low, known.high + unknown.high}
				delete(s, key)
				break
			}
		}
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

// An entering is all calls of a code at one place, from whatever code: together they are no more
// than the code's entries.
type entering struct {
	place    Place
	code     CodeID
	measured bool // some of them are
	interval
}

// physical adds the calls of one code by another. The entries that a link makes divide among its
// call sites by their samples and profiles.
func (n *network) physical(in *Input, rates []Rate, to callSet) {
	type key struct {
		place Place
		code  CodeID
	}
	var all []entering
	at := map[key]int{}
	for i := range n.links {
		l := &n.links[i]
		if in.Codes[l.to].Loop {
			continue // no call leads there
		}
		of := rates[l.to]
		for k, part := range n.parts(l) {
			if rate := of.PerSecond * l.share * part; rate > 0 && finite(rate) {
				place := n.calls[l.calls[k]].place(in)
				j, ok := at[key{place, l.to}]
				if !ok {
					j = len(all)
					at[key{place, l.to}] = j
					all = append(all, entering{place: place, code: l.to})
				}
				own, measured := newInterval(rate, of.Variance+n.shareVariance(l.to, l.share*part),
					n.most(in, l.to, of))
				all[j].interval, all[j].measured = all[j].plus(own), all[j].measured || measured
			}
		}
	}
	for _, e := range all {
		basis := profile.Estimated
		if !e.measured {
			basis = profile.Unmeasured
		}
		e.high = min(e.high, max(n.most(in, e.code, rates[e.code]), e.rate))
		to.sum(callKey{e.place, in.Codes[e.code].Method, basis}, e.interval)
	}
}

// most is how often a code may be entered.
func (n *network) most(in *Input, c CodeID, rate Rate) float64 {
	most := rate.PerSecond * factor(rate.Variance)
	if in.Codes[c].Tier == Compiled {
		most = min(most, n.busiest(in, c))
	}
	return most
}

// parts are the parts that the calls of a link have in its entries.
func (n *network) parts(l *link) []float64 {
	perEntry, total := 0., 0.
	for _, c := range l.calls {
		perEntry += n.calls[c].perEntry
	}
	parts := make([]float64, len(l.calls))
	for i, j := range l.calls {
		c := &n.calls[j]
		parts[i] = c.samples
		if perEntry > 0 {
			parts[i] += profileWeight * c.perEntry / perEntry
		}
		total += parts[i]
	}
	for i := range parts {
		if total > 0 {
			parts[i] /= total
		} else { // only stacks show that there are such calls
			parts[i] = 1 / float64(len(parts))
		}
	}
	return parts
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
