package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/tests/breakpoints"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// The aims for the estimated call graphs of stock JVMs in the mean of all programs, in percent of
// overlap by methods. No program's may be further from the truth than the timer's samples alone.
const (
	physicalAim = 85.0
	logicalAim  = 75.0
	// The aims for each program, if it only has code that counts, and in the first ten seconds
	// after its start.
	profilingAim = 95.0
	startingAim  = 80.0
)

// A hotspotStudy records real programs in stock JVMs, as Arnold & Grove's table 3 does: is the
// estimated call graph closer to the exact one than the two innermost frames of the same samples?
type hotspotStudy struct {
	marker string // marker of its table in the documentation
	trials []hotspotTrial
	short  int           // how many of them the short form has
	how    hotspotManner // in the long form
}

func (s hotspotStudy) plan() plan {
	return harness.Trials[meter, hotspotTrial, hotspotResult]{
		All: func(short bool) []hotspotTrial {
			if short {
				return s.trials[:s.short]
			}
			return s.trials
		},
		Run: func(m meter, ctx context.Context, trials []hotspotTrial) ([]hotspotResult, error) {
			return s.record(ctx, m, trials)
		},
		Tables: func(results []hotspotResult) []harness.Table {
			return []harness.Table{{Marker: s.marker, Table: hotspotTable(results)}}
		},
		OK: hotspotOK,
	}.Plan
}

// A hotspotManner is how long to record.
type hotspotManner struct {
	warmup     time.Duration   // until methods are compiled
	recordings []time.Duration // one after the other
	replay     time.Duration   // at most, for counting the calls of a few methods at a time
	logical    bool            // also judge inlined calls
}

var (
	longHotspot = hotspotManner{
		warmup: 15 * time.Second, recordings: []time.Duration{10 * time.Second, time.Minute},
		replay: time.Minute, logical: true,
	}
	shortHotspot = hotspotManner{
		warmup: 5 * time.Second, recordings: []time.Duration{5 * time.Second}, replay: 10 * time.Second,
	}
)

// A hotspotTrial is one JVM to record.
type hotspotTrial struct {
	program string
	flag    string // flag of the JVM, "" for none
	jdk     jvm.JDK
	// starting: it is recorded from its first iteration on, before the compilers have seen any of
	// it.
	starting bool
	// unchecked: the agent sets no breakpoint, as by default in virtual machines.
	unchecked bool
}

// String is the trial's name, which -run matches.
func (t hotspotTrial) String() string {
	return callTrial(t.program, fmt.Sprintf("hotspot, %s, %v", t.how(), t.jdk))
}

// how is the relevant part of the JVM's command line.
func (t hotspotTrial) how() string {
	switch {
	case t.starting:
		return "from its start"
	case t.unchecked:
		return "inlining, without breakpoints"
	}
	return cmp.Or(t.flag, "inlining")
}

// logicalOnly says that what code calls of code is not counted: it changes all the time, or the
// table is about logical calls.
func (t hotspotTrial) logicalOnly() bool { return t.starting || t.unchecked }

// alone reports whether the trial has an aim of its own, instead of contributing to the mean.
func (t hotspotTrial) alone() bool { return t.starting || t.flag == profiling }

// aim is the least overlap that a graph of the trial should have.
func (t hotspotTrial) aim(kind string) float64 {
	switch {
	case t.flag == profiling:
		return profilingAim
	case t.starting:
		return startingAim
	case kind == logical:
		return logicalAim
	}
	return physicalAim
}

const (
	// noInlining is the JVM's flag for making all calls except those of accessors and those
	// replaced by intrinsics.
	noInlining = "-XX:-Inline"
	// profiling is the flag that disables C2, so that all code counts its calls.
	profiling = "-XX:TieredStopAtLevel=3"
)

// hotspotPrograms are those of the suite that do the same in every iteration, on one thread, with
// an input so small that all calls of one iteration can be counted. Those of newerPrograms are
// recorded on the newest JDK, too.
var (
	hotspotPrograms = []string{"Xerces", "Jython", "Xalan", "Luindex", "Scalac", "Work"}
	newerPrograms   = []string{"Xerces"}
	// phasePrograms are recorded from their start and with the flag profiling.
	phasePrograms = []string{"Xerces", "Jython", "Luindex"}
)

// hotspotCalls are JVMs that have compiled their hot code.
func hotspotCalls(jdks []jvm.JDK) hotspotStudy {
	oldest, newest := jdks[0], jdks[len(jdks)-1]
	trials := hotspotTrials(hotspotPrograms, oldest)
	if newest != oldest {
		trials = append(trials, hotspotTrials(newerPrograms, newest)...)
	}
	return hotspotStudy{marker: "hotspot-calls", trials: trials, short: 1, how: longHotspot}
}

// hotspotPhases are JVMs whose code is not C2's: not yet, or never. The short form leaves them to
// hotspotCalls, which measures in the same way.
func hotspotPhases(jdks []jvm.JDK) hotspotStudy {
	s := hotspotStudy{marker: "hotspot-phases", how: longHotspot}
	s.how.recordings = []time.Duration{10 * time.Second}
	for _, program := range phasePrograms {
		s.trials = append(s.trials, hotspotTrial{program: program, flag: profiling, jdk: jdks[0]},
			hotspotTrial{program: program, jdk: jdks[0], starting: true})
	}
	return s
}

// hotspotUnchecked are JVMs in which no breakpoint is set. The short form leaves them to
// hotspotCalls, too.
func hotspotUnchecked(jdks []jvm.JDK) hotspotStudy {
	s := hotspotStudy{marker: "hotspot-unchecked", how: longHotspot}
	for _, program := range hotspotPrograms {
		s.trials = append(s.trials, hotspotTrial{program: program, jdk: jdks[0], unchecked: true})
	}
	return s
}

func hotspotTrials(programs []string, jdk jvm.JDK) (trials []hotspotTrial) {
	for _, program := range programs {
		trials = append(trials, hotspotTrial{program: program, flag: noInlining, jdk: jdk},
			hotspotTrial{program: program, jdk: jdk})
	}
	return trials
}

func (s hotspotStudy) record(ctx context.Context, m meter, trials []hotspotTrial) (results []hotspotResult, err error) {
	how := s.how
	if m.short {
		how = shortHotspot
	}
	if slices.ContainsFunc(trials, func(t hotspotTrial) bool { return !t.unchecked }) {
		if err := breakpoints.Check(); err != nil {
			return nil, m.unsafe(s.marker, err)
		}
	}
	var truth *exactIteration // result of the trial before
	for i, t := range trials {
		if i == 0 || t.program != trials[i-1].program || t.jdk != trials[i-1].jdk {
			truth = nil
		}
		if truth == nil && how.logical {
			if truth, err = how.count(ctx, t); err != nil {
				return nil, fmt.Errorf("count the calls of %v: %w", t, err)
			}
			fmt.Fprintf(m.out, "%s, %v: %v\n", t.program, t.jdk, truth)
		}
		of, err := how.try(ctx, m, t, truth)
		if err != nil {
			return nil, fmt.Errorf("%v: %w", t, err)
		}
		results = append(results, of...)
	}
	return results, nil
}

// hotspotOK reports whether no estimate of the made calls is worse than none, after the longest
// recording. Other missed aims are in the table.
func hotspotOK(results []hotspotResult) bool {
	longest := slices.Max(recordingLengths(results))
	return !slices.ContainsFunc(results, func(r hotspotResult) bool {
		return (r.kind == physical || r.starting) && r.length == longest && !r.better()
	})
}

// recordingLengths are how long a trial was recorded, one recording after the other.
func recordingLengths(results []hotspotResult) (lengths []time.Duration) {
	for _, r := range results {
		if !slices.Contains(lengths, r.length) {
			lengths = append(lengths, r.length)
		}
	}
	return lengths
}

// Kinds of call graphs.
const (
	physical = "physical" // graph of code: inlined calls do not count
	logical  = "logical"  // graph of methods
)

// A hotspotResult is the result of one recording for one kind of graph.
type hotspotResult struct {
	hotspotTrial
	kind   string
	length time.Duration
	cost   float64 // share of the guest's CPU time for sampling, according to the agent

	// Overlaps with the exact graph, in percent, by caller and callee.
	timer   float64 // overlap of the two innermost frames of samples
	found   float64 // overlap of the estimate
	sites   float64 // overlap of the estimate, by the place of the call, too
	callees float64 // overlap of the estimate, by callee alone: how much of the error is in rates
	// bound is that of the samples' callers with the true rates of callees: what better rates would
	// achieve.
	bound  float64
	absent float64 // percent of the estimate on edges that do not exist
	// covered is the fraction of the estimate that was compared, 0 to 1: methods that were not
	// replayed are left out.
	covered float64
	worst   []string
}

// shownDifferences is how many of the edges with the largest errors are printed.
const shownDifferences = 10

// compare compares a recording's graphs with the truth, which is that of calls to some callees, nil
// for all.
func (r hotspotRecording) compare(
	t hotspotTrial, kind string, truth *javaGraph, callees map[string]bool,
) hotspotResult {
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

// better reports whether the estimate is closer to the truth than the timer alone. If the timer has
// nearly everything, as for a program that makes one call, it cannot be improved upon.
func (r hotspotResult) better() bool {
	const nearlyAll = 98.0 // %
	return r.found > r.timer || r.found >= nearlyAll
}

func (r hotspotResult) print(w io.Writer) {
	fmt.Fprintf(w, "%v, %s, %v: overlap %.1f%%, timer only %.1f%%: %s\n",
		r.hotspotTrial, r.kind, r.length, r.found, r.timer, report.Verdict(r.better()))
	fmt.Fprintf(w, "  by sites %.1f%%, by callees alone %.1f%%; on edges that do not exist %.1f%%; the timer's "+
		"callers with true rates %.1f%%\n",
		r.sites, r.callees, r.absent, r.bound)
	for _, line := range r.worst {
		fmt.Fprintln(w, " ", line)
	}
}

// hotspotTable has a row for each graph of each program, with columns for each recording, and the
// means for code that C2 compiled.
func hotspotTable(results []hotspotResult) report.Table {
	table := report.Table{Header: []string{"program", "JDK", "compiled with", "graph"}}
	for _, length := range recordingLengths(results) {
		table.Header = append(table.Header, fmt.Sprintf("timer, %v", length), fmt.Sprintf("estimate, %v", length))
	}
	table.Header = append(table.Header, "with sites", "true rates", "compared %", "cost %", "")
	for _, row := range hotspotRows(results) {
		table.Add(row.cells()...)
	}
	for _, kind := range []string{physical, logical} {
		if results[0].alone() {
			break
		}
		if cells := hotspotMean(results, kind); cells != nil {
			table.Add(cells...)
		}
	}
	return table
}

// A hotspotRow is one graph of one program, in the recordings' order.
type hotspotRow []hotspotResult

func hotspotRows(results []hotspotResult) (rows []hotspotRow) {
	type key struct {
		hotspotTrial
		kind string
	}
	index := map[key]int{}
	for _, r := range results {
		k := key{r.hotspotTrial, r.kind}
		i, known := index[k]
		if !known {
			i = len(rows)
			index[k] = i
			rows = append(rows, nil)
		}
		rows[i] = append(rows[i], r)
	}
	return rows
}

func (row hotspotRow) cells() []string {
	last := row[len(row)-1]
	cells := []string{last.program, last.jdk.Release, last.how(), last.kind}
	better := true
	for _, r := range row {
		cells = append(cells, rounded(r.timer), rounded(r.found))
		better = better && r.better()
	}
	verdict := report.Verdict(better)
	if last.alone() {
		verdict = fmt.Sprintf("aim %.0f: %s", last.aim(last.kind), report.Verdict(last.found >= last.aim(last.kind)))
	}
	return append(cells, rounded(last.sites), rounded(last.bound), rounded(100*last.covered),
		fmt.Sprintf("%.2f", 100*last.cost), verdict)
}

// hotspotMean is a row with the means over all programs and both ways to compile; nil if there are
// none. The aim is that of the longest recording.
func hotspotMean(results []hotspotResult, kind string) []string {
	cells := []string{"mean", "", "", kind}
	var n float64
	var mean hotspotResult
	for _, length := range recordingLengths(results) {
		n, mean = 0, hotspotResult{}
		for _, r := range results {
			if r.kind == kind && r.length == length {
				n++
				mean.timer += r.timer
				mean.found += r.found
				mean.sites += r.sites
				mean.bound += r.bound
			}
		}
		cells = append(cells, rounded(mean.timer/n), rounded(mean.found/n))
	}
	if n == 0 {
		return nil
	}
	aim := results[0].aim(kind)
	verdict := fmt.Sprintf("aim %.0f: %s", aim, report.Verdict(mean.found/n >= aim))
	return append(cells, rounded(mean.sites/n), rounded(mean.bound/n), "", "", verdict)
}

func rounded(x float64) string { return fmt.Sprintf("%.0f", x) }
