package sink

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"
)

// A callWay is a way in which calls are learned.
type callWay struct {
	engine string
	basis  profile.Basis
	rate   profile.Rate
}

// number writes a number of calls: with three digits if it is estimated.
func (w callWay) number(n float64) string {
	if w.basis == profile.Sampled || w.basis == profile.Counted {
		return fmt.Sprintf("%.0f", n)
	}
	return threeDigits(n)
}

// callAccounts account for the calls in a profile, over all processes and windows.
type callAccounts struct {
	order             []callWay
	weight, overflown map[callWay]float64
}

func (a *callAccounts) add(p *profile.Profile) {
	if a.weight == nil {
		a.weight, a.overflown = make(map[callWay]float64), make(map[callWay]float64)
	}
	for _, proc := range p.Processes {
		for _, c := range proc.Calls {
			w := callWay{c.Engine, c.Basis, c.Rate}
			if _, known := a.weight[w]; !known {
				a.order = append(a.order, w)
			}
			a.weight[w] += c.Graph.Total()
			a.overflown[w] += c.Graph.Overflow()
		}
	}
}

// lines are the comments: one for each way.
func (a *callAccounts) lines() []string {
	var lines []string
	for _, w := range a.order {
		line := fmt.Sprintf("calls: %s %v, engine %s", w.number(a.weight[w]), w.basis, printable(w.engine))
		if w.rate != (profile.Rate{}) {
			line += fmt.Sprintf(", %v (stride x samples)", w.rate)
		}
		if a.overflown[w] > 0 {
			line += fmt.Sprintf(", %.0f more found no room in their graph", a.overflown[w])
		}
		lines = append(lines, line)
	}
	return lines
}
