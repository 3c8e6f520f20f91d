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
	buffers string // size of the threads' buffers, as -XX:TLABSize has it; "" if the JVM chooses
}

// String is the trial's name: what -run is matched with.
func (t allocTrial) String() string {
	name := fmt.Sprintf("alloc, %s, %v, %v", t.program, t.length, t.jdk)
	if t.buffers != "" {
		name += ", buffers of " + t.buffers
	}
	return name
}

// flags are what the JVM is started with.
func (t allocTrial) flags() []string {
	flags := []string{"-XX:+DTraceAllocProbes"}
	if t.buffers != "" {
		flags = append(flags, "-XX:TLABSize="+t.buffers, "-XX:-ResizeTLAB")
	}
	return flags
}

// allocPrograms are programs of the suite, from 300 events a second (Xalan) to several thousand (H2).
var allocPrograms = []string{"Xalan", "H2", "Jython", "Luindex"}

// allocLengths are how long each is recorded.
var allocLengths = []time.Duration{10 * time.Second, 30 * time.Second}

// allocRepeating is a program that does the same again and again: the ends of its buffers come at the same objects again.
const allocRepeating = "Luindex"

// allocBuffers are sizes of its buffers, so that they come at others. The first one is what the JVM chooses itself.
var allocBuffers = []string{"2049k", "1531k", "1217k"}

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
			trials = append(trials, allocTrial{program: program, length: length, jdk: jdks[0]})
		}
	}
	if !o.short {
		for _, buffers := range allocBuffers {
			trials = append(trials, allocTrial{allocRepeating, slices.Max(lengths), jdks[0], buffers})
		}
	}
	return slices.DeleteFunc(trials, func(t allocTrial) bool { return !o.run.MatchString(t.String()) })
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
	for _, table := range s.tables() {
		if err := table.Print(m.out); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(m.out); err != nil {
			return err
		}
	}
	return nil
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
	control := report.Table{Header: []string{
		"program", "time", "buffers", "events", "bytes: overlap %", "ideal", "objects: overlap %", "ideal", "all objects", "furthest off",
	}}
	points := func(o float64) string { return fmt.Sprintf("%.1f", o) }
	for _, r := range s.results {
		furthest := fmt.Sprintf("%s %+.1f points", r.furthest, 100*r.off)
		if r.buffers != "" {
			control.Add(r.program, r.length.String(), r.buffers, fmt.Sprint(r.events), points(r.overlap.Bytes), points(r.ideal.Bytes),
				points(r.overlap.Objects), points(r.ideal.Objects), change(r.objects), furthest)
			continue
		}
		table.Add(r.program, r.length.String(), fmt.Sprint(r.events),
			points(r.overlap.Bytes), points(r.ideal.Bytes), points(r.ideal.Bytes-allocAim), report.Verdict(r.reached()),
			points(r.overlap.Objects), points(r.ideal.Objects), change(r.bytes), change(r.objects), furthest)
	}
	return slices.DeleteFunc([]namedTable{{"alloc", table}, {"alloc-buffers", control}}, func(t namedTable) bool { return len(t.Rows) == 0 })
}

// change is a ratio as what it adds to 1, in percent.
func change(ratio float64) string { return fmt.Sprintf("%+.1f %%", 100*(ratio-1)) }

// ok: the aim is one for chance too, so that missing it is no error; that nothing lies in the same classes is.
func (s *allocations) ok() bool {
	return !slices.ContainsFunc(s.results, func(r allocResult) bool { return r.overlap.Bytes == 0 })
}
