package estimate

import (
	"cmp"
	"math"
	"slices"
)

// A Budget limits the breakpoint windows until the next Plan.
type Budget struct {
	Windows     int     // number of windows
	Hits        float64 // expected hits of all of them together
	Codes       int     // per window: breakpoints of a thread
	MaxHits     int     // per window
	MaxDuration float64 // per window, in seconds
}

// A Request is a window that would improve the estimate.
type Request struct {
	Codes    []CodeID
	MaxHits  int     // the window ends after so many hits
	Duration float64 // the window ends after so many seconds
	// Check marks windows of a caller, the first code, and its callee: they show how far profiles
	// can be trusted, and may end full. Other windows measure how often each of their codes is
	// called.
	Check bool
}

// Plan returns the windows that are likely to give the most information about the most important
// rates. r is the estimate for in, which has all windows so far. Only rates of rarely called codes
// can be observed, but profiles carry a rate on, from callers to callees and back. So Plan chooses
// the codes with the shortest path, in variance, to those with most calls.
func Plan(in *Input, r *Result, b Budget) []Request {
	if r.network == nil || b.Codes < 1 || b.MaxHits < 1 || !(b.MaxDuration > 0) {
		return nil
	}
	p := newPlanner(in, r, b)
	// Few checks are enough: profiles are mostly either right or wrong.
	kinds := [...][]Request{p.anchors(), p.explore(), p.checks()}
	turns := [...]int{0, 1, 0, 2, 0, 1}
	var plan []Request
	for turn := 0; len(plan) < b.Windows && len(kinds[0])+len(kinds[1])+len(kinds[2]) > 0; turn++ {
		next := &kinds[turns[turn%len(turns)]]
		if len(*next) == 0 {
			continue
		}
		request := (*next)[0]
		*next = (*next)[1:]
		if hits := p.expect(request); hits <= p.hits {
			p.hits -= hits
			plan = append(plan, request)
		}
	}
	return plan
}

// A planner computes the cost of a window and the information that it would give.
type planner struct {
	Budget
	hits     float64 // hits left in the budget
	in       *Input
	network  *network
	rates    []Rate
	observed *observations
	total    float64 // calls a second
}

func newPlanner(in *Input, r *Result, b Budget) *planner {
	p := &planner{Budget: b, hits: b.Hits, in: in, network: r.network, rates: r.Rates, observed: combine(in)}
	for _, rate := range r.Rates {
		p.total += rate.PerSecond
	}
	return p
}

// expect returns the expected hits of a window.
func (p *planner) expect(r Request) float64 {
	hits := 0.
	for _, c := range r.Codes {
		hits += p.rates[c].PerSecond * r.Duration
	}
	return min(hits, float64(r.MaxHits))
}

// roomFor is the share of a window's hits that is planned for: bursts come on top.
const roomFor = 1. / 3

// longest is how long a window of codes can be without ending full, in seconds.
func (p *planner) longest(codes ...CodeID) float64 {
	length, sum := p.MaxDuration, 1e-9
	for _, c := range codes {
		sum += p.rates[c].PerSecond
		if t := p.observed.codes[c].tooLong(); t > 0 {
			length = min(length, roomFor*t)
		}
	}
	return min(length, roomFor*float64(p.MaxHits)/sum)
}

// unobservedVariance is the variance of the logarithm of a rate above which the rate counts as unobserved.
const unobservedVariance = 6.

// An anchor is a code whose rate can be observed, and the value of an observation per cost.
type anchor struct {
	code  CodeID
	worth float64
}

// anchors plans windows that observe rates, the most valuable first. The rate of one code gives the
// rates of all codes that profiles connect it to.
func (p *planner) anchors() []Request {
	now, then := make([]float64, len(p.rates)), make([]float64, len(p.rates))
	perSample := p.in.Period / p.network.cpu
	for c := range p.rates {
		_, information := p.network.spent[c].edge(math.Log(max(p.rates[c].PerSecond, 1e-9)*p.in.Duration/p.network.cpu),
			perSample)
		now[c] = 1/(information+1/bodyVariance) + scaleVariance
		if _, variance, ok := p.observed.codes[c].rate(); ok {
			now[c] = min(now[c], variance)
		}
		now[c], then[c] = min(now[c], unobservedVariance), math.Inf(1)
	}
	uncertain, _ := p.network.spread(now)
	for _, c := range p.representatives() {
		then[c] = 1 / (1/now[c] + 1/p.prospect(c).variance)
	}
	left, from := p.network.spread(then)
	worth := make([]float64, len(p.rates))
	for c, rate := range p.rates {
		if gain := uncertain[c] - left[c]; gain > 0 && from[c] != VM && rate.PerSecond > 0 {
			worth[from[c]] += gain * rate.PerSecond / p.total
		}
	}
	var list []anchor
	for c, w := range worth {
		if w > 0 {
			list = append(list, anchor{CodeID(c), w / p.prospect(CodeID(c)).cost()})
		}
	}
	slices.SortFunc(list, func(a, b anchor) int {
		return cmp.Or(cmp.Compare(b.worth, a.worth), cmp.Compare(a.code, b.code))
	})
	return p.group(list)
}

const (
	// maxObservable is the highest observable rate, in calls a second: above it, a window is mostly
	// hits.
	maxObservable = 30e3
	// minLength is the minimum length of a window, in seconds: setting breakpoints takes about as
	// long.
	minLength = 1e-3
	// doubted is the variance after a window that only checks whether a code is called as often as
	// estimated.
	doubted = 1.5
)

// A prospect is the information that one more window would give about a code.
type prospect struct {
	variance float64 // variance after the window; infinite if it gives no information
	hits     float64 // expected
}

// cost of a window, in hits: setting and removing breakpoints costs about as much as ten.
func (h prospect) cost() float64 { return 10 + h.hits }

// prospect returns the information that a window would give about a code that is, or may be, rarely
// called.
func (p *planner) prospect(c CodeID) prospect {
	rate, length := p.rates[c].PerSecond, p.longest(c)
	hits := rate * length
	switch {
	case !p.in.Codes[c].breakable() || rate <= 0:
	case rate <= maxObservable && hits >= 0.1 && length >= minLength:
		return prospect{1 + 1/hits, hits}
	case p.doubtful(c):
		return prospect{doubted, exploreHits}
	}
	return prospect{variance: math.Inf(1)}
}

// breakable reports whether all calls of the code enter it at one address of its own.
func (c *Code) breakable() bool { return c.Tier != Interpreted && !c.Loop && !c.Replaced }

// group puts codes with similar rates into one window.
func (p *planner) group(list []anchor) []Request {
	const similar = 4
	var plan []Request
	used := make([]bool, len(list))
	for i := range list {
		if used[i] {
			continue
		}
		first := p.rates[list[i].code].PerSecond
		codes := []CodeID{list[i].code}
		for j := i + 1; j < len(list) && len(codes) < p.Codes; j++ {
			rate := p.rates[list[j].code].PerSecond
			if !used[j] && rate < similar*first && first < similar*rate {
				used[j] = true
				codes = append(codes, list[j].code)
			}
		}
		request := Request{Codes: codes, MaxHits: p.MaxHits, Duration: p.longest(codes...)}
		if request.Duration < minLength { // the estimate, which is in doubt, says that it is called too often
			request.MaxHits, request.Duration = min(exploreHits, p.MaxHits), min(exploreLength, p.MaxDuration)
		}
		plan = append(plan, request)
		if len(plan) >= p.Windows {
			break
		}
	}
	return plan
}

// checks plans windows that compare profiles with observations, for links with many calls and few
// comparisons.
func (p *planner) checks() []Request {
	type check struct {
		link  *link
		worth float64
	}
	var list []check
	for i := range p.network.links {
		l := &p.network.links[i]
		// The window must have room for some entries and their calls.
		if l.from == VM || l.from == l.to || l.profile <= 0 || max(l.profile, 1/l.profile) > float64(p.MaxHits)/6 ||
			p.rates[l.from].PerSecond <= 0 || !p.in.Codes[l.from].breakable() || !p.in.Codes[l.to].breakable() {
			continue
		}
		compared := 0.
		if j := p.observed.pairs[pair{l.from, l.to}]; j != nil {
			compared = j.windows
		}
		calls := p.rates[l.to].PerSecond * l.share / p.total
		list = append(list, check{l, math.Sqrt(calls) / (1 + compared)})
	}
	slices.SortStableFunc(list, func(a, b check) int { return cmp.Compare(b.worth, a.worth) })
	var plan []Request
	if p.Codes < 2 {
		return nil
	}
	for _, c := range list[:min(len(list), p.Windows/6+1)] {
		plan = append(plan, Request{
			Codes: []CodeID{c.link.from, c.link.to}, MaxHits: p.MaxHits, Duration: p.MaxDuration, Check: true,
		})
	}
	return plan
}

// Bounds of windows on codes of which only the time is known.
const (
	exploreLength = 6e-3  // seconds
	exploreRate   = 200e3 // calls a second; hotter codes are only tried if their rate is uncertain
	exploreSure   = 10    // samples in the code from which its rate is certain
	exploreTries  = 2     // windows
	exploreHits   = 24    // hits per window: enough to see that a code is called often
	exploreSilent = 2e-3  // seconds, of a window without hits: a shorter one shows nothing
)

// doubtful reports whether a code may be called far less often than estimated: it has few samples,
// and few observations.
func (p *planner) doubtful(c CodeID) bool {
	hot := p.rates[c].PerSecond > exploreRate && p.network.spent[c].samples >= exploreSure
	return !hot && p.tried(c) < exploreTries
}

// tried returns how many windows gave information about a code.
func (p *planner) tried(c CodeID) (n int) {
	for _, s := range p.observed.codes[c].windows {
		if s.full || s.hits > 0 || s.free >= exploreSilent {
			n++
		}
	}
	return n
}

// explore plans windows on codes with few observations, first those with the highest estimated
// rates: without many samples, errors do most harm there. Most of them turn out not to be called,
// which costs nothing.
func (p *planner) explore() []Request {
	var list []CodeID
	for c := range p.rates {
		if id := CodeID(c); p.rates[c].PerSecond > 0 && p.in.Codes[c].breakable() && p.doubtful(id) {
			list = append(list, id)
		}
	}
	slices.SortStableFunc(list, func(a, b CodeID) int {
		return cmp.Or(cmp.Compare(p.tried(a), p.tried(b)), cmp.Compare(p.rates[b].PerSecond, p.rates[a].PerSecond))
	})
	var plan []Request
	for codes := range slices.Chunk(list, p.Codes) {
		if len(plan) == p.Windows {
			break
		}
		plan = append(plan, Request{Codes: codes, MaxHits: min(exploreHits, p.MaxHits),
			Duration: min(exploreLength, p.MaxDuration)})
	}
	return plan
}

// firmly is the variance of a link up to which its two codes share one observation.
const firmly = 0.3

// representatives returns the best representatives to observe: from each group of codes whose rates
// follow from each other, the one with the most information per cost.
func (p *planner) representatives() []CodeID {
	group := make([]int32, len(p.rates))
	for c := range group {
		group[c] = int32(c)
	}
	root := func(c CodeID) int32 {
		for group[c] != int32(c) {
			group[c] = group[group[c]] // path halving
			c = CodeID(group[c])
		}
		return int32(c)
	}
	for i := range p.network.links {
		if l := &p.network.links[i]; l.firm() && p.network.variance(l) < firmly {
			group[root(l.from)] = root(l.to)
		}
	}
	best, score := map[int32]CodeID{}, map[int32]float64{}
	var order []int32
	for c := range p.rates {
		h := p.prospect(CodeID(c))
		if math.IsInf(h.variance, 1) {
			continue
		}
		g, s := root(CodeID(c)), h.variance*h.cost()
		before, known := score[g]
		if !known {
			order = append(order, g)
		}
		if !known || s < before {
			best[g], score[g] = CodeID(c), s
		}
	}
	list := make([]CodeID, 0, len(order))
	for _, g := range order {
		list = append(list, best[g])
	}
	return list
}
