package estimate

import (
	"cmp"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"
)

// A callSet sums up rates of calls.
type callSet map[callKey]interval

// An interval is a rate with what it is at least and at most.
type interval struct{ rate, low, high float64 }

type callKey struct {
	caller Place
	callee MethodID
	basis  profile.Basis
}

func newCalls() callSet { return callSet{} }

// add adds a rate whose logarithm has that variance. Ends of intervals add up as if all were wrong in the same direction.
func (s callSet) add(caller Place, callee MethodID, rate, variance float64, basis profile.Basis) {
	if rate > 0 && finite(rate) {
		key, f := callKey{caller, callee, basis}, factor(variance)
		sum := s[key]
		s[key] = interval{sum.rate + rate, sum.low + rate/f, sum.high + rate*f}
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

// onlyCaller is the share from which on a caller counts as the only one.
const onlyCaller = 0.99

// physical adds the calls of one code by another. The entries that a link makes divide among its call sites by their
// samples and profiles.
func (n *network) physical(in *Input, rates []Rate, to callSet) {
	for i := range n.links {
		l := &n.links[i]
		rate := rates[l.to].PerSecond * l.share
		basis := profile.Estimated
		if rates[l.to].Evidence == Counter && l.share > onlyCaller {
			basis = profile.Counted
		}
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
				to.add(c.place(in), in.Codes[c.callee].Method, rate*part, rates[l.to].Variance+n.shareVariance(l.to, l.share*part), basis)
			}
		}
	}
}

// place is where a call is made, as far as that is known.
func (c *call) place(in *Input) Place {
	switch {
	case c.caller == VM:
		return Place{NoMethod, -1}
	case len(c.site) == 0:
		return Place{in.Codes[c.caller].Method, -1}
	}
	return c.site[0]
}
