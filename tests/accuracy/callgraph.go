package main

import (
	"fmt"
	"math"
	"slices"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/view/report/stacks"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/tests/guests"
)

// A callGraph has methods by name, and call sites by line.
type callGraph = guests.VMGraph

// recordedCalls returns the calls of one process in a profile.
func recordedCalls(p *pprof.Profile, pid int) (*callGraph, error) {
	own := &pprof.Profile{SampleType: p.SampleType}
	for _, sample := range p.Sample {
		if slices.Contains(sample.NumLabel["pid"], int64(pid)) {
			own.Sample = append(own.Sample, sample)
		}
	}
	graph, err := stacks.EdgesOf(own, "calls")
	if err != nil {
		return nil, fmt.Errorf("read calls of process %d: %w", pid, err)
	}
	return cct.MapGraph(graph, func(e stacks.CallEdge) guests.VMEdge {
		return guests.VMEdge{Caller: e.Caller.Name, Site: int(e.Site.Line), Callee: e.Callee.Name}
	}), nil
}

// idealOverlap is the average overlap with truth of n independently drawn calls. A profiler's
// remaining error is bias, and the similarity of consecutive calls. With drawn shares q and true
// ones p, both adding up to 1, overlap is 1 - sum|q-p|/2. For each edge, n*q is binomial.
func idealOverlap(truth *callGraph, n float64) float64 {
	if n < 1 {
		return 0
	}
	var apart float64
	for _, calls := range truth.Edges() {
		apart += meanDeviation(math.Round(n), calls/truth.Total()) / math.Round(n)
	}
	return 100 * (1 - apart/2)
}

// meanDeviation is the mean absolute deviation of a binomial variable from its mean, by De Moivre's
// formula (Diaconis and Zabell, "Closed form summation for classical distributions", Statistical
// Science 6 (1991), section 1): 2 m C(n,m) p^m (1-p)^(n-m+1) with m the integer above np.
func meanDeviation(n, p float64) float64 {
	if p <= 0 || p >= 1 {
		return 0
	}
	m := math.Floor(n*p) + 1
	if m > n {
		return 0 // p is 1 but for rounding
	}
	return 2 * math.Exp(math.Log(m)+logChoose(n, m)+m*math.Log(p)+(n-m+1)*math.Log1p(-p))
}

func logChoose(n, k float64) float64 {
	all, _ := math.Lgamma(n + 1)
	chosen, _ := math.Lgamma(k + 1)
	rest, _ := math.Lgamma(n - k + 1)
	return all - chosen - rest
}
