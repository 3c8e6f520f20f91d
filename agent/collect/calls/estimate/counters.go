package estimate

import (
	"math"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// counterVariance is the variance of the logarithm of a count by the VM. Its counters are read some
// moments after the window's beginning, and threads that count at once overwrite each other's
// counts.
const counterVariance = 0.0025

// leastCounting is the share of the samples that must be in code that counts its calls. Below it
// counts are just as correct, but rates of the other code are all too high or too low by a common
// factor (scaleVariance). Next to correct counts, that would make the shares of all calls worse.
const leastCounting = 0.5

// MostlyCounts reports whether most of the time was spent in code that counts its calls, so that
// Estimate uses the counts.
func (in *Input) MostlyCounts() bool {
	counting, all := 0., 0.
	for i := range in.Edges {
		e := &in.Edges[i]
		if !in.has(e.Callee) || !sensible(e.Samples) || in.Codes[e.Callee].Tier == Native {
			continue
		}
		all += e.Samples
		if in.Codes[e.Callee].counts() {
			counting += e.Samples
		}
	}
	return all > 0 && counting >= leastCounting*all
}

// counts reports whether the VM counts the calls that the code makes.
func (c *Code) counts() bool { return c.CountsCalls || c.Tier == Interpreted }

const (
	// fullyCovered is the share of the executions from which on the rest does not matter: counters
	// are read some moments after the window's beginning.
	fullyCovered = 0.95
	// hardlyCovered is the share below which counts say little.
	hardlyCovered = 0.5
)

// useCounters replaces estimates by the VM's counts in the window, for methods whose calls were all
// counted: those that ran only in the interpreter and in code that counts calls. That is most code
// of a program, though not the hottest.
func (in *Input) useCounters(n *network, to callSet, logical bool) {
	if !in.MostlyCounts() {
		return
	}
	counts, sites := in.counting(n)
	for m := range in.Methods {
		p := &in.Methods[m]
		if !p.Known || p.Covered < hardlyCovered || p.Elsewhere || counts[m] <= 0 {
			continue
		}
		how := counted{profile.Counted, counterVariance}
		if missing := 1 - p.Covered; missing > 1-fullyCovered {
			how = counted{profile.Estimated, counterVariance + missing*missing}
		}
		for i := range p.Sites {
			s := &p.Sites[i]
			if !sensible(s.Rate) || !sensible(s.Count) {
				continue
			}
			sum := 0.
			for _, t := range s.Targets {
				sum += t.Count
			}
			for _, t := range s.Targets {
				rate := 0.
				if all := max(sum, s.Count); t.Count > 0 && all > 0 {
					rate = s.Rate * t.Count / all
				}
				at := Place{MethodID(m), s.BCI}
				to.count(at, t.Method, rate, sites[edgeAt{at, t.Method}].inlined > 0,
					sites[edgeAt{at, NoMethod}].made > 0, logical, how)
			}
		}
	}
}

// An edgeAt is a call of a method at a place. With NoMethod it stands for any callee there.
type edgeAt struct {
	at     Place
	callee MethodID
}

// A countedSite is the number of counting codes in which a call was inlined, and in which it is
// made.
type countedSite struct{ inlined, made int }

// counting returns, by method, the number of counting codes that contain it, or -1 if a code that
// does not count contains it. sites says whether its calls are inlined or made in the counting
// codes.
func (in *Input) counting(n *network) (counts []int, sites map[edgeAt]countedSite) {
	counts, sites = make([]int, len(in.Methods)), map[edgeAt]countedSite{}
	note := func(m MethodID, all bool) {
		switch {
		case !in.knowsMethod(m) || counts[m] < 0:
		case all:
			counts[m]++
		default:
			counts[m] = -1
		}
	}
	for c := range in.Codes {
		code := &in.Codes[c]
		if !in.has(CodeID(c)) || code.Replaced && n.spent[c].samples == 0 {
			continue
		}
		all := code.counts()
		if len(code.Copies) == 0 {
			note(code.Method, all)
		}
		for _, copied := range code.Copies {
			note(copied.Method, all)
			if p := copied.Parent; all && p >= 0 && int(p) < len(code.Copies) {
				at := edgeAt{Place{code.Copies[p].Method, copied.BCI}, copied.Method}
				s := sites[at]
				s.inlined++
				sites[at] = s
			}
			for _, bci := range copied.Calls {
				at := edgeAt{Place{copied.Method, bci}, NoMethod}
				s := sites[at]
				s.made++
				sites[at] = s
			}
		}
	}
	return counts, sites
}

// counted says what is known of counts: their basis, and the variance of their logarithms.
type counted struct {
	basis    profile.Basis
	variance float64
}

// count sets the rate of a call that was counted. Known calls are scaled, so that made and inlined
// ones keep their proportion. Without known calls, the code decides; an intrinsic is not a call
// that is made.
func (s callSet) count(at Place, callee MethodID, rate float64, inlined, made, logical bool, how counted) {
	if !logical && inlined {
		return // the counts include both
	}
	parts, known := map[profile.Basis]float64{}, 0.
	for _, basis := range []profile.Basis{profile.Estimated, profile.Inferred, profile.Unmeasured} {
		key := callKey{at, callee, basis}
		of := basis
		if !inlined && basis != profile.Inferred { // all counted calls are made
			of = how.basis
		}
		parts[of] += s[key].rate
		known += s[key].rate
		delete(s, key)
	}
	switch {
	case known > 0:
		for basis, part := range parts {
			s.add(at, callee, part/known*rate, how.variance, 0, basis)
		}
	case made && !inlined:
		s.add(at, callee, rate, how.variance, 0, how.basis)
	case logical:
		s.add(at, callee, rate, how.variance, 0, profile.Inferred)
	}
}

// A tally is how often the VM counted entries of methods, each with the codes that count there.
// C2's code does not count: entries into it are missing.
type tally []tallied

type tallied struct {
	codes    []CodeID // the codes that count their entries
	rate     float64  // logarithm of entries per second of CPU time, of all codes together
	variance float64
	// If most is set, rate is an upper bound for the codes: other counting code has the method
	// inlined, and its entries are included.
	most bool
}

// tallyVariance is the variance of the logarithm of a count: while the process changes, the
// counters' time is not quite the window's. Small counts vary more: a method that was entered
// before the window makes calls in it.
const tallyVariance = 0.05

func newTally(in *Input, n *network) (t tally) {
	codes, inlined := make([][]CodeID, len(in.Methods)), make([]bool, len(in.Methods))
	for c := range in.Codes {
		code := &in.Codes[c]
		if !in.has(CodeID(c)) || code.Tier != Profiling && code.Tier != Interpreted {
			continue
		}
		if !code.Loop {
			codes[code.Method] = append(codes[code.Method], CodeID(c))
		}
		for i := 1; i < len(code.Copies); i++ {
			if m := code.Copies[i].Method; in.knowsMethod(m) {
				inlined[m] = true
			}
		}
	}
	for m := range in.Methods {
		p := &in.Methods[m]
		// A method that was not entered in the window may run all the time, in a loop.
		if entries := p.Entered * in.Duration; p.EntersKnown && len(codes[m]) > 0 && entries > 0 && finite(entries) {
			t = append(t, tallied{codes[m], near(math.Log(entries / n.cpu)), tallyVariance + 1/entries, inlined[m]})
		}
	}
	return t
}

// equations adds that the sum of the codes' rates is the counted rate, for rates near exp(x). Other
// equations decide how it divides among the codes.
func (t tally) equations(x []float64, to []equation) []equation {
	for _, m := range t {
		sum := 0.
		for _, c := range m.codes {
			sum += math.Exp(near(x[c]))
		}
		bound := about
		if m.most {
			bound = atMost
		}
		for _, c := range m.codes {
			to = append(to, equation{
				to: c, from: VM, value: m.rate + near(x[c]) - math.Log(sum), variance: m.variance,
				freedom: hardly, bound: bound, evidence: Counter,
			})
		}
	}
	return to
}

// made returns how often a second of wall time the VM counted the calls of each link whose caller
// counts its calls, and the variance of the logarithm; 0 if that is not known. If several codes
// count into the same site, it is not known which of them made the calls.
func (in *Input) made(n *network) (rates, variances []float64) {
	rates, variances = make([]float64, len(n.links)), make([]float64, len(n.links))
	counting := map[Place]CodeID{}
	for c := range in.Codes {
		code := &in.Codes[c]
		if !in.has(CodeID(c)) || !code.counts() {
			continue
		}
		note := func(at Place) {
			at.Method = in.counter(at.Method)
			if of, ok := counting[at]; ok && of != CodeID(c) {
				counting[at] = VM
			} else {
				counting[at] = CodeID(c)
			}
		}
		if len(code.Copies) == 0 {
			for _, s := range in.Methods[code.Method].Sites {
				note(Place{code.Method, s.BCI})
			}
		}
		for _, copied := range code.Copies {
			for _, bci := range copied.Calls {
				note(Place{copied.Method, bci})
			}
		}
	}
	alone := func(c *call) bool {
		return counting[Place{in.counter(c.site[0].Method), c.site[0].BCI}] == c.caller
	}
	for i := range n.links {
		l := &n.links[i]
		sum := 0.
		for _, j := range l.calls {
			rate, missing := in.siteRate(&n.calls[j])
			if l.from == VM || !in.Codes[l.from].counts() || len(n.calls[j].site) == 0 || !alone(&n.calls[j]) ||
				rate < 0 {
				sum = 0
				break
			}
			sum += rate
			variances[i] = max(variances[i], counterVariance+missing*missing)
		}
		if sum*in.Duration >= 1 {
			rates[i] = sum
			variances[i] += 1 / (sum * in.Duration)
		}
	}
	return rates, variances
}

// siteRate is how often a second the VM counted a call, and the share of the window in which it did
// not count; -1 if unknown.
func (in *Input) siteRate(c *call) (rate, missing float64) {
	if len(c.site) == 0 || !in.knowsMethod(c.site[0].Method) {
		return -1, 0
	}
	p := &in.Methods[c.site[0].Method]
	if !p.Known || p.Covered < hardlyCovered {
		return -1, 0
	}
	for i := range p.Sites {
		s := &p.Sites[i]
		if s.BCI != c.site[0].BCI || !sensible(s.Rate) || !sensible(s.Count) {
			continue
		}
		sum, of := 0., 0.
		for _, t := range s.Targets {
			sum += t.Count
			if t.Method == in.Codes[c.callee].Method {
				of += t.Count
			}
		}
		if all := max(sum, s.Count); all > 0 && of > 0 {
			return s.Rate * of / all, 1 - p.Covered
		}
	}
	return -1, 0
}
