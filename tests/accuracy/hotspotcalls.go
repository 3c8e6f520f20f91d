package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/breakpoints"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
)

// What the estimated call graphs of stock JVMs are meant to reach in the mean of all programs, in percent of overlap by
// methods; and no program's is to be further from the truth than what the timer alone says of it.
const (
	physicalAim = 85.0
	logicalAim  = 75.0
	// Each program's, where it only has code that counts, and in the first ten seconds after its start.
	profilingAim = 95.0
	startingAim  = 80.0
)

// The hotspotCalls section records real programs in stock JVMs, as Arnold & Grove's table 3 does: is the call graph that
// is estimated closer to the exact one than the two innermost frames of the same samples?
type hotspotCalls struct {
	table   string // in the documentation
	trials  []hotspotTrial
	how     hotspotManner
	results []hotspotResult
}

// A hotspotManner says how long to look.
type hotspotManner struct {
	warmup     time.Duration   // until methods are compiled
	recordings []time.Duration // one after the other
	replay     time.Duration   // at most, for counting the calls of a few methods after the other
	logical    bool            // also look at calls that were inlined
}

var (
	longHotspot = hotspotManner{
		warmup: 15 * time.Second, recordings: []time.Duration{10 * time.Second, time.Minute},
		replay: time.Minute, logical: true,
	}
	shortHotspot = hotspotManner{
		warmup: 8 * time.Second, recordings: []time.Duration{5 * time.Second}, replay: 20 * time.Second,
	}
)

// A hotspotTrial is one JVM to record.
type hotspotTrial struct {
	program string
	flag    string // of the JVM, "" for none
	jdk     jvm.JDK
	// starting: it is recorded from its first iteration on, of which the compilers know nothing yet.
	starting bool
	// unchecked: the agent sets no breakpoint, as by default in virtual machines.
	unchecked bool
}

// String is the trial's name: what -run is matched with.
func (t hotspotTrial) String() string {
	return callTrial(t.program, fmt.Sprintf("hotspot, %s, %v", t.how(), t.jdk))
}

// how is the part of the JVM's command line that matters.
func (t hotspotTrial) how() string {
	switch {
	case t.starting:
		return "from its start"
	case t.unchecked:
		return "inlining, without breakpoints"
	}
	return cmp.Or(t.flag, "inlining")
}

// logicalOnly says that what code calls of code is not counted: it changes all the time, or the table is about logical calls.
func (t hotspotTrial) logicalOnly() bool { return t.starting || t.unchecked }

// alone says that the trial has an aim of its own, and not the mean of all.
func (t hotspotTrial) alone() bool { return t.starting || t.flag == profiling }

// aim is what the overlap of a graph of the trial is meant to be at least.
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
	// noInlining is the JVM's flag with which calls are made that are not to accessors, or replaced by instructions of the
	// compiler's own.
	noInlining = "-XX:-Inline"
	// profiling is the flag with which code is never compiled by C2, so that it counts its calls as long as it runs.
	profiling = "-XX:TieredStopAtLevel=3"
)

// hotspotPrograms are those of the suite that do the same in every iteration, on one thread, and have an input so small
// that all calls of one can be counted. Those of newerPrograms are recorded on the newest JDK, too.
var (
	hotspotPrograms = []string{"Xerces", "Jython", "Xalan", "Luindex", "Scalac", "Work"}
	newerPrograms   = []string{"Xerces"}
	phasePrograms   = []string{"Xerces", "Jython", "Luindex"} // are recorded from their start and with the flag profiling
)

// planHotspotCalls plans JVMs that have compiled what is hot.
func planHotspotCalls(jdks []jvm.JDK, o options) *hotspotCalls {
	s := &hotspotCalls{table: "hotspot-calls", how: longHotspot}
	oldest, newest := jdks[0], jdks[len(jdks)-1]
	all := hotspotTrials(hotspotPrograms, oldest)
	if newest != oldest {
		all = append(all, hotspotTrials(newerPrograms, newest)...)
	}
	return s.plan(all, o)
}

// planHotspotPhases plans JVMs whose code is not that of C2: not yet, or never. The short form leaves them to planHotspotCalls, which
// measures in the same way.
func planHotspotPhases(jdks []jvm.JDK, o options) *hotspotCalls {
	s := &hotspotCalls{table: "hotspot-phases", how: longHotspot}
	s.how.recordings = []time.Duration{10 * time.Second}
	if o.short {
		return s
	}
	var all []hotspotTrial
	for _, program := range phasePrograms {
		all = append(all, hotspotTrial{program: program, flag: profiling, jdk: jdks[0]}, hotspotTrial{program: program, jdk: jdks[0], starting: true})
	}
	return s.plan(all, o)
}

// planHotspotUnchecked plans JVMs in which no breakpoint is set. The short form leaves them to planHotspotCalls, too.
func planHotspotUnchecked(jdks []jvm.JDK, o options) *hotspotCalls {
	s := &hotspotCalls{table: "hotspot-unchecked", how: longHotspot}
	if o.short {
		return s
	}
	var all []hotspotTrial
	for _, program := range hotspotPrograms {
		all = append(all, hotspotTrial{program: program, jdk: jdks[0], unchecked: true})
	}
	return s.plan(all, o)
}

// plan keeps those trials that the options ask for: in short the first one.
func (s *hotspotCalls) plan(all []hotspotTrial, o options) *hotspotCalls {
	if o.short {
		s.how, all = shortHotspot, all[:1]
	}
	for _, t := range all {
		if o.run.MatchString(t.String()) {
			s.trials = append(s.trials, t)
		}
	}
	return s
}

func hotspotTrials(programs []string, jdk jvm.JDK) (trials []hotspotTrial) {
	for _, program := range programs {
		trials = append(trials, hotspotTrial{program: program, flag: noInlining, jdk: jdk}, hotspotTrial{program: program, jdk: jdk})
	}
	return trials
}

func (s *hotspotCalls) run(ctx context.Context, m meter) error {
	if slices.ContainsFunc(s.trials, func(t hotspotTrial) bool { return !t.unchecked }) {
		if err := breakpoints.Check(); err != nil {
			return m.unsafe(s.table, err)
		}
	}
	var truth *exactIteration // of the trial before
	for i, t := range s.trials {
		if i == 0 || t.program != s.trials[i-1].program || t.jdk != s.trials[i-1].jdk {
			truth = nil
		}
		if truth == nil && s.how.logical {
			var err error
			if truth, err = s.how.count(ctx, t); err != nil {
				return fmt.Errorf("count the calls of %v: %w", t, err)
			}
			fmt.Fprintf(m.out, "%s, %v: %v\n", t.program, t.jdk, truth)
		}
		results, err := s.how.try(ctx, m, t, truth)
		if err != nil {
			return fmt.Errorf("%v: %w", t, err)
		}
		s.results = append(s.results, results...)
	}
	if len(s.results) == 0 {
		return nil
	}
	table := s.tables()[0]
	fmt.Fprintln(m.out)
	return table.Print(m.out)
}

// ok says that no estimate of the calls that are made is worse than none, after the longest recording. What else is
// missed, the table says.
func (s *hotspotCalls) ok() bool {
	longest := slices.Max(s.how.recordings)
	return !slices.ContainsFunc(s.results, func(r hotspotResult) bool {
		return (r.kind == physical || r.starting) && r.length == longest && !r.better()
	})
}
