package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// An eventStudy is a kind of events that is recorded of programs which know theirs.
type eventStudy string

const (
	allocStudy eventStudy = "sites"  // where objects are allocated, and how many
	lockStudy  eventStudy = "locks"  // how long threads wait for one another
	enterStudy eventStudy = "enters" // who takes monitors that are free
	pauseStudy eventStudy = "pauses" // how long the JVM stops its threads
	faultStudy eventStudy = "faults" // whose memory is touched first
	valueStudy eventStudy = "values" // what a probe's operands are
)

// eventStudies are all, in the order of the documentation.
var eventStudies = []eventStudy{allocStudy, lockStudy, enterStudy, pauseStudy, faultStudy, valueStudy}

// A knownEvents section records programs whose events are known.
type knownEvents struct {
	study   eventStudy
	trials  []eventTrial
	results []eventResult
}

// An eventTrial is a program to record. What it does not need is zero.
type eventTrial struct {
	study   eventStudy
	jdk     jvm.JDK
	threads int
	setting string // the collector of pauses, the interval of values
}

// String is the trial's name: what -run is matched with.
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

// An eventResult is what came of a trial.
type eventResult struct {
	eventTrial
	figures []figure
}

func (s *knownEvents) run(ctx context.Context, m meter) error {
	for _, t := range s.trials {
		figures, err := t.measure(ctx, m)
		if err != nil {
			return fmt.Errorf("%v: %w", t, err)
		}
		table := report.Table{Header: []string{t.String(), "truth", "recorded", "tolerance", ""}}
		for _, f := range figures {
			table.Add(f.cells()...)
		}
		if err := table.Print(m.out); err != nil {
			return err
		}
		fmt.Fprintln(m.out)
		s.results = append(s.results, eventResult{t, figures})
	}
	return nil
}

// measure records the trial's program and compares.
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

// tables have the worst figure of each group.
func (s *knownEvents) tables() []namedTable {
	table := report.Table{Header: []string{"recorded", "figure", "truth", "recorded", "tolerance", ""}}
	for _, r := range s.results {
		for _, f := range worst(r.figures) {
			name := strings.TrimPrefix(r.String(), "events, "+string(s.study)+", ")
			table.Add(append([]string{name}, f.cells()...)...)
		}
	}
	return []namedTable{{"events-" + string(s.study), table}}
}

func (s *knownEvents) ok() bool {
	for _, r := range s.results {
		if slices.ContainsFunc(r.figures, func(f figure) bool { return !f.aim && !f.ok() }) {
			return false
		}
	}
	return true
}
