package estimate

import (
	"cmp"
	"math"
	"slices"
)

// A Budget says how much may be listened to until the next Plan.
type Budget struct {
	Windows     int     // how many of them
	Hits        float64 // that are to be expected in all of them
	Codes       int     // that one window may have: breakpoints of a thread
	MaxHits     int     // of one window
	MaxDuration float64 // of one window, seconds
}

// A Request is a window that would help.
type Request struct {
	Codes    []CodeID
	MaxHits  int     // when to end at the latest
	Duration float64 // seconds after which to end at the latest
	// Check is for windows of a caller, the first code, and its callee: they show how far profiles can be trusted,
	// and may end full. Other windows measure how often each of their codes is called.
	Check bool
}

// Plan returns the windows that are likely to give the most information about the rates that matter most: in was estimated
// with result r, and has all windows so far. Only rates of rarely called codes can be observed. But the profiles carry a rate
// on, from callers to callees and back. So Plan chooses the codes from which the way to those with most calls is shortest,
// in variance.
func Plan(in *Input, r *Result, b Budget) []Request {
	if r.network == nil || b.Codes < 1 || b.MaxHits < 1 || !(b.MaxDuration > 0) {
		return nil
	}
	p := newPlanner(in, r, b)
	// Checks are few: profiles are right or wrong.
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

// A planner knows the cost of a window and the information that it would give.
type planner struct {
	Budget
	hits    float64 // that are left
	in      *Input
	network *network
	rates   []Rate
	heard   *hearing
	total   float64 // calls a second
}

func newPlanner(in *Input, r *Result, b Budget) *planner {
	p := &planner{Budget: b, hits: b.Hits, in: in, network: r.network, rates: r.Rates, heard: listen(in)}
	for _, rate := range r.Rates {
		p.total += rate.PerSecond
	}
	return p
}

// expect is how many hits a window is likely to have.
func (p *planner) expect(r Request) float64 {
	hits := 0.
	for _, c := range r.Codes {
		hits += p.rates[c].PerSecond * r.Duration
	}
	return min(hits, float64(r.MaxHits))
}

// roomFor is the part of a window's hits that it is planned to have: bursts come on top.
const roomFor = 1. / 3

// longest is how long a window of codes can be without ending full.
func (p *planner) longest(codes ...CodeID) float64 {
	length, sum := p.MaxDuration, 1e-9
	for _, c := range codes {
		sum += p.rates[c].PerSecond
		if t := p.heard.codes[c].tooLong(); t > 0 {
			length = min(length, roomFor*t)
		}
	}
	return min(length, roomFor*float64(p.MaxHits)/sum)
}

// unheard is the largest variance of the logarithm of a rate without observations.
const unheard = 6.

// An anchor is a code whose rate can be observed, and the worth of an observation for its cost.
type anchor struct {
	code  CodeID
	worth float64
}

// anchors plans windows that observe rates, the most valuable first. The rate of one code gives the rates of all codes that
// profiles lead to from there.
func (p *planner) anchors() []Request {
	now, then := make([]float64, len(p.rates)), make([]float64, len(p.rates))
	perSample := p.in.Period / p.network.cpu
	for c := range p.rates {
		_, now[c] = p.network.spent[c].edgeRate(perSample)
		if _, variance, ok := p.heard.codes[c].rate(); ok {
			now[c] = min(now[c], variance)
		}
		now[c], then[c] = min(now[c], unheard), math.Inf(1)
	}
	uncertain, _ := p.network.spread(now)
	for _, c := range p.spokesmen() {
		then[c] = 1 / (1/now[c] + 1/p.hear(c).variance)
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
			list = append(list, anchor{CodeID(c), w / p.hear(CodeID(c)).cost()})
		}
	}
	slices.SortFunc(list, func(a, b anchor) int {
		return cmp.Or(cmp.Compare(b.worth, a.worth), cmp.Compare(a.code, b.code))
	})
	return p.group(list)
}

const (
	// maxHeard is the highest observable rate, in calls a second: above it, a window is mostly hits.
	maxHeard = 30e3
	// minLength is the least length of a window, in seconds: to set breakpoints takes about as long.
	minLength = 1e-3
	// doubted is the variance that a window leaves which is to find out whether a code is called as often as is thought.
	doubted = 1.5
)

// A hearable is the information that one more window would give about a code.
type hearable struct {
	variance float64 // that it leaves; infinite if it gives no information
	hits     float64 // that it is likely to have
}

// cost of a window, in hits: to set and remove breakpoints costs about as much as ten.
func (h hearable) cost() float64 { return 10 + h.hits }

// hear returns the information that a window would give about a code that is, or may be, called rarely.
func (p *planner) hear(c CodeID) hearable {
	rate, length := p.rates[c].PerSecond, p.longest(c)
	hits := rate * length
	switch {
	case !p.in.Codes[c].breakable() || rate <= 0:
	case rate <= maxHeard && hits >= 0.1 && length >= minLength:
		return hearable{1 + 1/hits, hits}
	case p.doubtful(c):
		return hearable{doubted, exploreHits}
	}
	return hearable{variance: math.Inf(1)}
}

// breakable reports whether all calls of the code come in at one address of its own.
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
		if request.Duration < minLength { // thought to be too often called, and doubted
			request.MaxHits, request.Duration = min(exploreHits, p.MaxHits), min(exploreLength, p.MaxDuration)
		}
		plan = append(plan, request)
		if len(plan) >= p.Windows {
			break
		}
	}
	return plan
}

// checks plans windows that compare profiles with observations, for links that make many calls and have few comparisons yet.
func (p *planner) checks() []Request {
	type check struct {
		link  *link
		worth float64
	}
	var list []check
	for i := range p.network.links {
		l := &p.network.links[i]
		// Some entries and their calls must fit into the window.
		if l.from == VM || l.from == l.to || l.profile <= 0 || max(l.profile, 1/l.profile) > float64(p.MaxHits)/6 ||
			p.rates[l.from].PerSecond <= 0 || !p.in.Codes[l.from].breakable() || !p.in.Codes[l.to].breakable() {
			continue
		}
		compared := 0.
		if j := p.heard.pairs[pair{l.from, l.to}]; j != nil {
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

// Bounds of windows on codes that nothing is known of but time.
const (
	exploreLength = 6e-3  // seconds
	exploreRate   = 200e3 // calls a second; hotter codes are tried if that is not sure
	exploreSure   = 10    // samples in the code that make it so
	exploreTries  = 2     // windows
	exploreHits   = 24    // of a window: enough to see that a code is called often
	exploreHeard  = 2e-3  // seconds, of a window that was silent: a shorter one says nothing
)

// doubtful reports whether a code may be called far less than is thought: it was hardly seen, and hardly listened to.
func (p *planner) doubtful(c CodeID) bool {
	hot := p.rates[c].PerSecond > exploreRate && p.network.spent[c].samples >= exploreSure
	return !hot && p.tried(c) < exploreTries
}

// tried is how many windows said something of a code.
func (p *planner) tried(c CodeID) (n int) {
	for _, s := range p.heard.codes[c].windows {
		if s.full || s.hits > 0 || s.free >= exploreHeard {
			n++
		}
	}
	return n
}

// explore plans windows on codes that were hardly listened to, those first that are thought to be called most: without
// many samples, that is where an error does most harm. Most of them are found to be silent, which costs nothing.
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
		plan = append(plan, Request{Codes: codes, MaxHits: min(exploreHits, p.MaxHits), Duration: min(exploreLength, p.MaxDuration)})
	}
	return plan
}

// firmly is the variance up to which a link makes two rates one thing to know.
const firmly = 0.3

// spokesmen returns the codes that it is best to listen to: of those whose rates follow from each other, the one that
// gives the most information for its cost.
func (p *planner) spokesmen() []CodeID {
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
		h := p.hear(CodeID(c))
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
