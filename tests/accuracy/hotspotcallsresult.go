package main

import (
	"fmt"
	"io"
	"time"

	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// Kinds of call graphs.
const (
	physical = "physical" // of code: what was inlined is no call
	logical  = "logical"  // of methods
)

// A hotspotResult is what one recording said of one kind of graph.
type hotspotResult struct {
	hotspotTrial
	kind   string
	length time.Duration
	cost   float64 // share of the guest's CPU time that sampling took, as the agent reckons

	// Overlaps with the exact graph, in percent, by caller and callee.
	timer   float64 // of the two innermost frames of samples
	found   float64 // of the estimate
	sites   float64 // of the estimate, by the place of the call, too
	callees float64 // of the estimate, by callee alone: how much of what is missing are rates
	bound   float64 // of the samples' callers with the true rates of callees: what better rates would give
	absent  float64 // percent of the estimate that is on edges which do not exist
	// covered is what part of the estimate was compared, 0 to 1: methods that were not replayed are left out.
	covered float64
	worst   []string
}

// shownDifferences is how many edges are printed that the estimate is furthest from.
const shownDifferences = 10

// compare holds a recording's graphs against the truth, which is that of calls to some callees, nil for all.
func (r hotspotRecording) compare(t hotspotTrial, kind string, truth *javaGraph, callees map[string]bool) hotspotResult {
	found, timer := r.graphs[kind].found, r.graphs[kind].timer
	result := hotspotResult{hotspotTrial: t, kind: kind, length: r.length, cost: r.cost, covered: 1}
	if callees != nil {
		found, result.covered = onlyOf(found, callees)
		timer, _ = onlyOf(timer, callees)
	}
	result.sites = cct.Overlap(found, truth)
	truth, found = withoutSites(truth), withoutSites(found)
	result.timer, result.found = cct.Overlap(timer, truth), cct.Overlap(found, truth)
	result.callees = cct.Overlap(found.Callees(), truth.Callees())
	result.bound = cct.Overlap(withRates(timer, truth), truth)
	result.absent = absent(found, truth)
	result.worst = differences(found, truth, shownDifferences)
	return result
}

// better says that the estimate is nearer to the truth than the timer alone. Where it has nearly all, as of a program
// that makes one call, there is nothing to be better in.
func (r hotspotResult) better() bool {
	const nearlyAll = 98.0 // %
	return r.found > r.timer || r.found >= nearlyAll
}

func (r hotspotResult) print(w io.Writer) {
	fmt.Fprintf(w, "%v, %s, %v: overlap %.1f%%, timer only %.1f%%: %s\n",
		r.hotspotTrial, r.kind, r.length, r.found, r.timer, report.Verdict(r.better()))
	fmt.Fprintf(w, "  by sites %.1f%%, by callees alone %.1f%%; on edges that do not exist %.1f%%; the timer's callers with true rates %.1f%%\n",
		r.sites, r.callees, r.absent, r.bound)
	for _, line := range r.worst {
		fmt.Fprintln(w, " ", line)
	}
}
