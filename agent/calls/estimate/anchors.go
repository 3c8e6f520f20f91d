package estimate

import (
	"cmp"
	"math"
	"slices"
)

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

// unheard is the most that the variance of the logarithm of a rate can be that nothing was heard of.
const unheard = 6.

// An anchor is a code whose rate can be heard, and what that would be worth for what it costs.
type anchor struct {
	code  CodeID
	worth float64
}

// anchors plans windows that hear rates, the most valuable first: what is known of one code is known of all that
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
	// maxHeard is how many calls a second can be heard: beyond, a window is mostly hits.
	maxHeard = 30e3
	// minLength is the least length of a window, in seconds: to set breakpoints takes about as long.
	minLength = 1e-3
	// doubted is the variance that a window leaves which is to find out whether a code is called as often as is thought.
	doubted = 1.5
)

// A hearable is what one more window would tell of a code.
type hearable struct {
	variance float64 // that it leaves; infinite if it can tell nothing
	hits     float64 // that it is likely to have
}

// cost of a window, in hits: to set and remove breakpoints costs about as much as ten.
func (h hearable) cost() float64 { return 10 + h.hits }

// hear tells what a window would tell of a code that is called rarely, or that may be.
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
