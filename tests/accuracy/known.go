package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/tests/events"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// An eventStudy is a kind of events, recorded of programs that know their own.
type eventStudy string

const (
	allocStudy eventStudy = "sites"  // where objects are allocated, and how many
	lockStudy  eventStudy = "locks"  // how long threads wait for one another
	enterStudy eventStudy = "enters" // who acquires free monitors
	pauseStudy eventStudy = "pauses" // how long the JVM stops its threads
	faultStudy eventStudy = "faults" // whose memory has first-touch page faults
	valueStudy eventStudy = "values" // the operands of a probe
)

// planKnown records programs whose events are known.
func planKnown(study eventStudy, jdks []jvm.JDK) plan {
	return harness.Trials[meter, eventTrial, eventResult]{
		All: func(short bool) []eventTrial { return study.trials(jdks, short) },
		Run: harness.OneByOne(meter.recordKnown),
		Tables: func(results []eventResult) []harness.Table {
			return []harness.Table{{Marker: "events-" + string(study), Table: knownTable(results)}}
		},
		OK: knownOK,
	}.Plan
}

// An eventTrial is a program to record. Fields that it does not need are zero.
type eventTrial struct {
	study   eventStudy
	jdk     jvm.JDK
	threads int
	setting string // the collector of pauses, the interval of values
}

// String is the trial's name, which -run matches.
func (t eventTrial) String() string {
	words := []string{"events", string(t.study)}
	if t.setting != "" {
		words = append(words, t.setting)
	}
	if t.threads > 0 {
		words = append(words, fmt.Sprintf("threads %d", t.threads))
	}
	if t.jdk.Release != "" {
		words = append(words, t.jdk.String())
	}
	return strings.Join(words, ", ")
}

// An eventResult is the result of a trial.
type eventResult struct {
	eventTrial
	figures []figure
}

func (m meter) recordKnown(ctx context.Context, t eventTrial) (r eventResult, err error) {
	r.eventTrial = t
	if r.figures, err = t.measure(ctx, m); err != nil {
		return r, err
	}
	table := report.Table{Header: []string{t.String(), "truth", "recorded", "tolerance", ""}}
	for _, f := range r.figures {
		table.Add(f.cells()...)
	}
	if err := table.Print(m.out); err != nil {
		return r, err
	}
	fmt.Fprintln(m.out)
	return r, nil
}

// measure records the trial's program and compares the events with the truth.
func (t eventTrial) measure(ctx context.Context, m meter) ([]figure, error) {
	switch t.study {
	case allocStudy:
		return t.measureSites(ctx, m)
	case lockStudy:
		return t.measureWaits(ctx, m)
	case enterStudy:
		return t.measureEnters(ctx, m)
	case pauseStudy:
		return t.measurePauses(ctx, m)
	case faultStudy:
		return t.measureFaults(ctx, m)
	case valueStudy:
		return t.measureValues(ctx, m)
	}
	return nil, fmt.Errorf("no study %q", t.study)
}

// knownTable has the worst figure of each group.
func knownTable(results []eventResult) report.Table {
	table := report.Table{Header: []string{"recorded", "figure", "truth", "recorded", "tolerance", ""}}
	for _, r := range results {
		for _, f := range worst(r.figures) {
			name := strings.TrimPrefix(r.String(), "events, "+string(r.study)+", ")
			table.Add(append([]string{name}, f.cells()...)...)
		}
	}
	return table
}

func knownOK(results []eventResult) bool {
	for _, r := range results {
		if slices.ContainsFunc(r.figures, func(f figure) bool { return !f.aim && !f.ok() }) {
			return false
		}
	}
	return true
}

// collectors are the JVM's, by their flags -XX:+Use…GC.
var collectors = []string{"Serial", "Parallel", "G1", "Z", "Shenandoah"}

// trials are all trials of the study, or in short those on the oldest JDK that take few seconds.
func (s eventStudy) trials(jdks []jvm.JDK, short bool) (trials []eventTrial) {
	if short && s == enterStudy {
		return nil // TestLiveShares of agent/collect/monitors compares the same shares
	}
	if short || s == enterStudy {
		jdks = jdks[:1] // free monitors are recognised in the code of JDK 17
	}
	if s == valueStudy {
		for _, every := range valueIntervals {
			trials = append(trials, eventTrial{study: s, setting: fmt.Sprintf("every %d", every)})
		}
		return trials
	}
	threads, settings := []int{1, 4}, []string{""}
	switch s {
	case lockStudy:
		threads = []int{2, 4}
	case pauseStudy:
		threads, settings = []int{2}, collectors
	case faultStudy:
		threads = []int{1}
	}
	if short {
		// Of collectors, G1 remains.
		threads, settings = threads[len(threads)-1:], settings[len(settings)/2:len(settings)/2+1]
	}
	for _, jdk := range jdks {
		for _, setting := range settings {
			for _, n := range threads {
				trials = append(trials, eventTrial{study: s, jdk: jdk, threads: n, setting: setting})
			}
		}
	}
	return trials
}

// A seen is a recording of a run, and the run's true events.
type seen struct {
	truth     events.Truth
	recording *profiler.Recording
}

// seeRun records a run of a guest from before its beginning until after its end.
func (m meter) seeRun(
	ctx context.Context, guest *events.Guest, threads, amount int, flags ...string,
) (s seen, err error) {
	s.recording, err = m.recordWork(ctx, guest.PID(), func() error {
		var err error
		s.truth, err = guest.Run(threads, amount)
		return err
	}, flags...)
	return s, err
}

// recordWork records all of what work does.
func (m meter) recordWork(
	ctx context.Context, pid int, work func() error, flags ...string,
) (*profiler.Recording, error) {
	return m.agent.While(ctx, profiler.Options{PID: pid, Extra: flags}, (*profiler.AgentRun).WaitAttached,
		func(*profiler.AgentRun) error { return work() })
}

// A figure compares one recorded number with the truth.
type figure struct {
	group     string // its group: tables have the worst figure of each group
	what      string
	unit      string // unit of truth and measured: "", "ms", "%"
	truth     float64
	measured  float64
	tolerance float64 // in that unit
	aim       bool    // missing it is reported, but is not an error
}

func (f figure) off() float64 { return math.Abs(f.measured - f.truth) }

func (f figure) ok() bool { return f.off() <= f.tolerance }

// used is the fraction of the tolerance that the figure needs, 1 is all.
func (f figure) used() float64 {
	if f.off() == 0 {
		return 0
	}
	return f.off() / max(f.tolerance, 1e-9) // without any tolerance it has failed
}

// worst returns the figure of each group that needs most of its tolerance, in the order of the
// groups.
func worst(figures []figure) []figure {
	var worst []figure
	for _, f := range figures {
		i := slices.IndexFunc(worst, func(w figure) bool { return w.group == f.group })
		switch {
		case i < 0:
			worst = append(worst, f)
		case f.used() > worst[i].used():
			worst[i] = f
		}
	}
	return worst
}

// within converts a fraction of the truth to a tolerance.
func within(share, truth float64) float64 { return share * math.Abs(truth) }

// cells are the figure in a table: what, truth, recorded, tolerance, verdict.
func (f figure) cells() []string {
	number := func(v float64) string {
		text := fmt.Sprintf("%.2f", v)
		if f.unit == "" {
			text = fmt.Sprintf("%.0f", v)
		} else {
			text += " " + f.unit
		}
		return text
	}
	what := f.group
	if f.what != "" {
		what += ": " + f.what
	}
	return []string{what, number(f.truth), number(f.measured), "±" + number(f.tolerance), report.Verdict(f.ok())}
}
