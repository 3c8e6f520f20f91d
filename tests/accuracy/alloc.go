package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/events"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// The allocations section records real programs with sampled allocations and exact counts of them in one recording, and
// says how much of both lies in the same classes: figure 11 of Inoue and Nakatani (OOPSLA 2009). Beside it stands what so
// many samples would have without any error but chance.
type allocations struct {
	trials  []allocTrial
	results []allocResult
}

// An allocTrial is a program of the suite to record for some time.
type allocTrial struct {
	program string
	length  time.Duration
	jdk     jvm.JDK
}

// String is the trial's name: what -run is matched with.
func (t allocTrial) String() string {
	return fmt.Sprintf("alloc, %s, %v, %v", t.program, t.length, t.jdk)
}

// allocPrograms are programs of the suite, from 300 events a second (Xalan) to several thousand (H2).
var allocPrograms = []string{"Xalan", "H2", "Jython", "Luindex"}

// allocLengths are how long each is recorded.
var allocLengths = []time.Duration{10 * time.Second, 30 * time.Second}

const (
	// allocAim is how far below the ideal the overlap of bytes may be, in percentage points.
	allocAim = 2
	// allocSimulations are enough: the mean of that many has a standard error of a few hundredths of a percentage point.
	allocSimulations = 100
	allocSeed        = 1
)

func planAllocations(jdks []jvm.JDK, o options) (trials []allocTrial) {
	programs, lengths := allocPrograms, allocLengths
	if o.short {
		programs, lengths = programs[:1], lengths[:1]
	}
	for _, program := range programs {
		for _, length := range lengths {
			if t := (allocTrial{program, length, jdks[0]}); o.run.MatchString(t.String()) {
				trials = append(trials, t)
			}
		}
	}
	return trials
}

// An allocResult is what came of a trial.
type allocResult struct {
	allocTrial
	events         int64 // that were sampled
	overlap, ideal events.Overlap
	bytes, objects float64 // sampled in all, 1 is as many as there were
	furthest       string  // the class whose share of the bytes is off by most
	off            float64 // by so much, -1 to 1
}

func (r allocResult) reached() bool { return r.overlap.Bytes >= r.ideal.Bytes-allocAim }

func (s *allocations) run(ctx context.Context, m meter) error {
	if len(s.trials) == 0 {
		return nil
	}
	for _, t := range s.trials {
		recording, err := m.recordAllocations(ctx, t)
		if err != nil {
			return fmt.Errorf("%v: %w", t, err)
		}
		r, err := t.judge(recording)
		if err != nil {
			return fmt.Errorf("%v: %w", t, err)
		}
		s.results = append(s.results, r)
	}
	table := s.tables()[0]
	if err := table.Print(m.out); err != nil {
		return err
	}
	_, err := fmt.Fprintln(m.out)
	return err
}

// judge compares the samples in a recording with its exact counts.
func (t allocTrial) judge(recording *profiler.Recording) (allocResult, error) {
	rows, err := events.Read(recording.Profile, "alloc_objects", "alloc_space")
	if err != nil {
		return allocResult{}, err
	}
	sampled, exact := events.Split(rows)
	r := allocResult{allocTrial: t, events: events.Count(sampled), overlap: events.Compare(sampled, exact)}
	if r.events == 0 || len(exact) == 0 {
		return allocResult{}, fmt.Errorf("%d sampled events and %d exact rows\n%s", r.events, len(exact), recording.Output)
	}
	r.ideal = events.Ideal(events.Cells(exact), int(r.events), allocSimulations, allocSeed)
	r.objects = events.Sum(sampled, 0) / events.Sum(exact, 0)
	r.bytes = events.Sum(sampled, 1) / events.Sum(exact, 1)
	r.furthest, r.off = events.ByClass(sampled, 1).Furthest(events.ByClass(exact, 1))
	return r, nil
}

func (s *allocations) tables() []namedTable {
	table := report.Table{Header: []string{
		"program", "time", "events", "bytes: overlap %", "ideal", "aim", "", "objects: overlap %", "ideal",
		"all bytes", "all objects", "furthest off",
	}}
	for _, r := range s.results {
		table.Add(r.program, r.length.String(), fmt.Sprint(r.events),
			fmt.Sprintf("%.1f", r.overlap.Bytes), fmt.Sprintf("%.1f", r.ideal.Bytes), fmt.Sprintf("%.1f", r.ideal.Bytes-allocAim),
			report.Verdict(r.reached()), fmt.Sprintf("%.1f", r.overlap.Objects), fmt.Sprintf("%.1f", r.ideal.Objects),
			change(r.bytes), change(r.objects), fmt.Sprintf("%s %+.1f points", r.furthest, 100*r.off))
	}
	return []namedTable{{"alloc", table}}
}

// change is a ratio as what it adds to 1, in percent.
func change(ratio float64) string { return fmt.Sprintf("%+.1f %%", 100*(ratio-1)) }

// ok: the aim is one for chance too, so that missing it is no error; that nothing lies in the same classes is.
func (s *allocations) ok() bool {
	return !slices.ContainsFunc(s.results, func(r allocResult) bool { return r.overlap.Bytes == 0 })
}
