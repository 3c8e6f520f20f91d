package estimate

import "math"

// firmly is the variance up to which a link makes two rates one thing to know.
const firmly = 0.3

// spokesmen returns the codes that it is best to listen to: of those whose rates follow from each other the one that
// tells most for the least.
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
