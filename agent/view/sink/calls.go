package sink

import (
	"cmp"
	"maps"
	"math"
	"strings"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// calls appends one call graph of a process, the hottest edges first.
func (b *pprofBuilder) calls(proc *profile.Process, c *profile.Calls) error {
	edges, err := wholeEdges(c.Graph)
	if err != nil {
		return err
	}
	labels := processLabels(proc)
	setLabel(labels, stored.LabelEngine, c.Engine)
	setLabel(labels, stored.LabelBasis, c.Basis.String())
	numbers := b.numbers(proc)
	if c.Rate.Stride > 0 {
		numbers[stored.LabelStride] = []int64{int64(c.Rate.Stride)}
	}
	if c.Rate.Samples > 0 {
		numbers[stored.LabelSamples] = []int64{int64(c.Rate.Samples)}
	}
	rare := 0 // edges of which nothing is left
	for _, e := range edges {
		if e.calls == 0 {
			rare++
			continue
		}
		// Methods of a graph have no line and no address of their own: the caller's are those of
		// the call.
		caller := e.Caller.Value()
		caller.Line, caller.Address = int(e.Site.Line), stored.SiteAddress(e.Site)
		sampleNumbers := numbers
		if within, ok := c.Intervals[e.Edge]; ok {
			sampleNumbers = maps.Clone(numbers)
			factor := within.FactorOf(c.Graph.Weight(e.Edge))
			sampleNumbers[stored.LabelFactor] = []int64{roundedFactor(factor)}
			if c.Engine == stored.EngineCount { // one sample for each process and window
				sampleNumbers[stored.LabelFactor] = []int64{int64(math.Ceil(100 * factor))}
			}
		}
		b.profile.Sample = append(b.profile.Sample, &pprof.Sample{
			Location: []*pprof.Location{
				b.complete(b.location(nil, e.Callee)),
				b.complete(b.location(nil, symbol.Intern(caller))),
			},
			Value:    b.content.values(0, 0, e.calls, 0),
			Label:    labels,
			NumLabel: sampleNumbers,
		})
	}
	if rare > 0 {
		b.accounts.round(stored.Rounding{Comm: proc.Comm, PID: int64(proc.PID), Engine: c.Engine, Basis: c.Basis,
			Edges: rare})
	}
	return nil
}

// roundedFactor is a factor in percent, rounded up to one of few: samples of several windows merge
// if all their labels are equal.
func roundedFactor(f float64) int64 {
	const step = 1.2
	return int64(math.Round(100 * math.Pow(step, math.Ceil(math.Log(max(f, 1))/math.Log(step)))))
}

// A wholeEdge is an edge with a whole number of calls.
type wholeEdge struct {
	profile.Edge
	calls int64
}

// wholeEdges returns the edges of g that have a weight, the hottest first, with their weights
// rounded so that the sum stays. Of a rare edge nothing may be left.
func wholeEdges(g *profile.Graph) ([]wholeEdge, error) {
	var (
		edges   []wholeEdge
		weights []float64
	)
	for _, e := range g.Hottest(compareEdges) {
		if e.Weight != 0 {
			edges = append(edges, wholeEdge{Edge: e.Edge})
			weights = append(weights, e.Weight)
		}
	}
	whole, err := apportion(weights)
	if err != nil {
		return nil, err
	}
	for i := range edges {
		edges[i].calls = whole[i]
	}
	return edges, nil
}

// compareEdges orders edges by caller, site and callee, each as it is shown: symbols have no order
// of their own, and equal windows must give equal files.
func compareEdges(a, b profile.Edge) int {
	return cmp.Or(
		compareSymbols(a.Caller, b.Caller),
		cmp.Compare(a.Site.Line, b.Site.Line), cmp.Compare(a.Site.Offset, b.Site.Offset),
		compareSymbols(a.Callee, b.Callee),
	)
}

func compareSymbols(a, b symbol.Symbol) int {
	if a == b {
		return 0
	}
	f, g := a.Value(), b.Value()
	return cmp.Or(
		strings.Compare(f.Function, g.Function), strings.Compare(f.SystemName, g.SystemName),
		strings.Compare(f.File, g.File), cmp.Compare(f.Kind, g.Kind),
		cmp.Compare(frameMapping(f).Start, frameMapping(g).Start),
	)
}
