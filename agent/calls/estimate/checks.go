package estimate

import (
	"cmp"
	"math"
	"slices"
)

// checks plans windows that compare profiles with what is heard: of links that make many calls, where little was
// compared yet.
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
