package sink

import (
	"cmp"
	"math"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/cct"
)

// A pairing is two profiles side by side: the weight that each gives to every thing of either.
type pairing[K comparable] struct {
	order   []K // of first appearance, so that nothing depends on the order of a map
	weights [2]cct.Weights[K]
	totals  [2]float64
}

func newPairing[K comparable]() *pairing[K] {
	return &pairing[K]{weights: [2]cct.Weights[K]{{}, {}}}
}

// add adds weight to a thing in the profile of that side, 0 or 1.
func (p *pairing[K]) add(side int, key K, weight float64) {
	_, here := p.weights[side][key]
	if _, there := p.weights[1-side][key]; !here && !there {
		p.order = append(p.order, key)
	}
	p.weights[side][key] += weight
	p.totals[side] += weight
}

func (p *pairing[K]) overlap() float64 { return cct.Overlap(p.weights[0], p.weights[1]) }

func (p *pairing[K]) correlation() float64 { return cct.Correlation(p.weights[0], p.weights[1]) }

// A difference is what two profiles say of one thing: its shares in percent.
type difference[K comparable] struct {
	key    K
	shares [2]float64
}

// by is how much larger the share in the second profile is, in percentage points.
func (d difference[K]) by() float64 { return d.shares[1] - d.shares[0] }

// differences returns the things whose shares differ, the largest difference first, then the largest share.
func (p *pairing[K]) differences() []difference[K] {
	const rounding = 1e-9 // percent
	var list []difference[K]
	for _, key := range p.order {
		d := difference[K]{key: key}
		for side, total := range p.totals {
			if total > 0 {
				d.shares[side] = 100 * p.weights[side][key] / total
			}
		}
		if math.Abs(d.by()) > rounding {
			list = append(list, d)
		}
	}
	slices.SortStableFunc(list, func(a, b difference[K]) int {
		return cmp.Or(cmp.Compare(math.Abs(b.by()), math.Abs(a.by())), cmp.Compare(b.shares[0], a.shares[0]))
	})
	return list
}
