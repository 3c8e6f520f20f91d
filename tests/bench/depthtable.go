package main

import (
	"fmt"
	"math"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

const (
	// chainAim is how much longer than an empty program chain may take, in nanoseconds.
	chainAim = 1500
	// flatAim is what counts as flat: a sample of the deepest stack over one of the shallowest.
	flatAim = 1.2
)

// print prints tables, with a blank line before each.
func (b bench) print(tables ...report.Table) error {
	for _, table := range tables {
		fmt.Fprintln(b.out)
		if err := table.Print(b.out); err != nil {
			return err
		}
	}
	return nil
}

// depthTable is what samples cost against the depth of the stack.
func depthTable(costs *sampleCosts) report.Table {
	table := report.Table{Header: slices.Concat([]string{"calls deep", "Hz"}, costHeader)}
	for _, at := range costs.places {
		table.Add(slices.Concat([]string{fmt.Sprint(at.depth), fmt.Sprint(at.rate)}, costCells(costs, at))...)
	}
	return table
}

// contextTable is what samples of real programs cost.
func contextTable(costs *sampleCosts) report.Table {
	verdict := []string{"chain above empty, ns", fmt.Sprintf("aim: ≤ %d", chainAim)}
	table := report.Table{Header: slices.Concat([]string{"guest", "Hz"}, costHeader, verdict)}
	for _, at := range costs.places {
		over := costs.over(at, modeChain)
		verdict = []string{over.whole(), over.atMost(chainAim)}
		table.Add(slices.Concat([]string{at.guest, fmt.Sprint(at.rate)}, costCells(costs, at), verdict)...)
	}
	return table
}

// costHeader has the modes in their own order.
var costHeader = []string{
	"frames", "empty, ns", "chain, ns", "walked, %", "bytes", "links only, ns", "bytes",
	"partial, ns", "bytes", "walk, ns", "bytes",
}

// costCells are those of costHeader.
func costCells(costs *sampleCosts, at place) []string {
	cells := []string{ratioOf(costs.of(at, modeWalk, framesOf)).middle(), ratioOf(costs.of(at, modeEmpty, nanosOf)).whole()}
	for _, m := range modes[1:] {
		cells = append(cells, ratioOf(costs.of(at, m, nanosOf)).whole())
		if m == modeChain {
			cells = append(cells, fmt.Sprintf("%.1f", ratioOf(costs.of(at, m, percentOf)).median))
		}
		cells = append(cells, ratioOf(costs.of(at, m, bytesOf)).middle())
	}
	return cells
}

// flatTable says how what chain costs depends on the depth, and how far it is above an empty program.
func flatTable(costs *sampleCosts) report.Table {
	table := report.Table{Header: []string{"Hz", "", "measured", "aim", ""}}
	for _, rate := range costs.rates() {
		shallow, deep := costs.ends(rate)
		add := func(what string, r ratio, shown string, aim float64) {
			table.Add(fmt.Sprint(rate), what, shown, fmt.Sprintf("≤ %g", aim), r.atMost(aim))
		}
		for _, m := range []mode{modeChain, modeLinks} {
			name := string(m)
			if m == modeLinks {
				name = "links only"
			}
			took := quotients(costs.of(deep, m, nanosOf), costs.of(shallow, m, nanosOf))
			add(fmt.Sprintf("%s: ns below %d calls over %d", name, deep.depth, shallow.depth), took, took.String(), flatAim)
			took = quotients(costs.of(deep, m, bytesOf), costs.of(shallow, m, bytesOf))
			add(fmt.Sprintf("%s: bytes below %d calls over %d", name, deep.depth, shallow.depth), took, took.String(), flatAim)
			took = costs.over(deep, m)
			add(fmt.Sprintf("%s: ns above the empty program's below %d calls", name, deep.depth), took, took.whole(), chainAim)
		}
	}
	return table
}

// over is how much longer a mode takes than the empty program of the same round.
func (s *sampleCosts) over(at place, m mode) ratio {
	var differences []float64
	took, empty := s.of(at, m, nanosOf), s.of(at, modeEmpty, nanosOf)
	for i := range min(len(took), len(empty)) {
		differences = append(differences, took[i]-empty[i])
	}
	return ratioOf(differences)
}

// quotients is what a is over b in the same rounds.
func quotients(a, b []float64) ratio {
	var all []float64
	for i := range min(len(a), len(b)) {
		all = append(all, per(a[i], b[i]))
	}
	return ratioOf(all)
}

// rates are the rates of all places.
func (s *sampleCosts) rates() []int {
	var rates []int
	for _, at := range s.places {
		if len(rates) == 0 || rates[len(rates)-1] != at.rate {
			rates = append(rates, at.rate)
		}
	}
	return rates
}

// ends are the places of the shallowest and the deepest stack at a rate.
func (s *sampleCosts) ends(rate int) (shallow, deep place) {
	shallow.depth = math.MaxInt
	for _, at := range s.places {
		if at.rate == rate && at.depth < shallow.depth {
			shallow = at
		}
		if at.rate == rate && at.depth > deep.depth {
			deep = at
		}
	}
	return shallow, deep
}
