package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/events"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
	"github.com/vmprof-agent/vmprof-agent/tests/suite"
)

// planAllocations records real programs with sampled allocations and exact counts in one recording,
// and reports how much of both is in the same classes: figure 11 of Inoue and Nakatani (OOPSLA
// 2009). The table also has the overlap that the same number of samples would have with random
// errors only. The aim depends on chance, too, so missing it is not an error; an overlap of nothing
// is.
func planAllocations(jdks []jvm.JDK) plan {
	return harness.Trials[meter, allocTrial, allocResult]{
		All:    func(short bool) []allocTrial { return allocTrials(jdks, short) },
		Run:    harness.OneByOne(meter.recordAllocations),
		Tables: allocTables,
		OK: func(results []allocResult) bool {
			return !slices.ContainsFunc(results, func(r allocResult) bool { return r.overlap.Bytes == 0 })
		},
	}.Plan
}

// An allocTrial is a program of the suite to record for some time.
type allocTrial struct {
	program string
	length  time.Duration
	jdk     jvm.JDK
	buffers string // size of the threads' buffers, as -XX:TLABSize has it; "" if the JVM chooses
}

// String is the trial's name, which -run matches.
func (t allocTrial) String() string {
	name := fmt.Sprintf("alloc, %s, %v, %v", t.program, t.length, t.jdk)
	if t.buffers != "" {
		name += ", buffers of " + t.buffers
	}
	return name
}

// flags returns the JVM's command line flags.
func (t allocTrial) flags() []string {
	flags := []string{"-XX:+DTraceAllocProbes"}
	if t.buffers != "" {
		flags = append(flags, "-XX:TLABSize="+t.buffers, "-XX:-ResizeTLAB")
	}
	return flags
}

// allocPrograms are programs of the suite, from 300 events a second (Xalan) to several thousand
// (H2).
var allocPrograms = []string{"Xalan", "H2", "Jython", "Luindex"}

// allocLengths are the lengths of the recordings.
var allocLengths = []time.Duration{10 * time.Second, 30 * time.Second}

// allocRepeating is a program that repeats the same work: the ends of its buffers come at the same
// objects each time.
const allocRepeating = "Luindex"

// allocBuffers are sizes of its buffers, so that their ends come at different objects. The first
// one is the JVM's own choice.
var allocBuffers = []string{"2049k", "1531k", "1217k"}

const (
	// allocAim is how far below the ideal the overlap of bytes may be, in percentage points.
	allocAim = 2
	// allocSimulations are enough: the mean of that many has a standard error of a few hundredths
	// of a percentage point.
	allocSimulations = 100
	allocSeed        = 1
)

func allocTrials(jdks []jvm.JDK, short bool) (trials []allocTrial) {
	programs, lengths := allocPrograms, allocLengths
	if short {
		programs, lengths = programs[:1], []time.Duration{3 * time.Second}
	}
	for _, program := range programs {
		for _, length := range lengths {
			trials = append(trials, allocTrial{program: program, length: length, jdk: jdks[0]})
		}
	}
	if !short {
		for _, buffers := range allocBuffers {
			trials = append(trials, allocTrial{allocRepeating, slices.Max(lengths), jdks[0], buffers})
		}
	}
	return trials
}

// An allocResult is the result of a trial.
type allocResult struct {
	allocTrial
	events         int64 // sampled
	overlap, ideal events.Overlap
	bytes, objects float64 // estimated from samples, as a ratio to the true number
	furthest       string  // the class with the largest error of its share of the bytes
	off            float64 // that error, -1 to 1
	classes        []allocClass
}

// An allocClass is a class with its parts of all objects and bytes, by samples and by exact counts.
type allocClass struct {
	name           string
	objects, bytes [2]float64 // sampled and exact, 0 to 1
}

// allocClasses is how many classes of a program the breakdown has.
const allocClasses = 6

// breakdown returns the classes with most objects by the exact counts.
func breakdown(sampled, exact []events.Row) (classes []allocClass) {
	for side, rows := range [][]events.Row{sampled, exact} {
		for value := range 2 {
			weights := events.ByClass(rows, value)
			total := weights.Total()
			for name, w := range weights {
				i := slices.IndexFunc(classes, func(c allocClass) bool { return c.name == name })
				if i < 0 {
					i = len(classes)
					classes = append(classes, allocClass{name: name})
				}
				shares := &classes[i].objects
				if value == 1 {
					shares = &classes[i].bytes
				}
				shares[side] = w / total
			}
		}
	}
	slices.SortFunc(classes, func(a, b allocClass) int {
		return cmp.Or(cmp.Compare(b.objects[1], a.objects[1]), cmp.Compare(a.name, b.name))
	})
	return classes[:min(allocClasses, len(classes))]
}

func (r allocResult) reached() bool { return r.overlap.Bytes >= r.ideal.Bytes-allocAim }

// judge compares the samples in a recording with its exact counts.
func (t allocTrial) judge(recording *profiler.Recording) (allocResult, error) {
	rows, err := events.Read(recording.Profile, "alloc_objects", "alloc_space")
	if err != nil {
		return allocResult{}, err
	}
	sampled, exact := events.Split(rows)
	r := allocResult{allocTrial: t, events: events.Count(sampled), overlap: events.Compare(sampled, exact)}
	if r.events == 0 || len(exact) == 0 {
		return allocResult{}, fmt.Errorf("%d sampled events and %d exact rows\n%s", r.events, len(exact),
			recording.Output)
	}
	r.ideal = events.Ideal(events.Cells(exact), int(r.events), allocSimulations, allocSeed)
	r.objects = events.Sum(sampled, 0) / events.Sum(exact, 0)
	r.bytes = events.Sum(sampled, 1) / events.Sum(exact, 1)
	r.classes = breakdown(sampled, exact)
	r.furthest, r.off = events.ByClass(sampled, 1).Furthest(events.ByClass(exact, 1))
	return r, nil
}

func allocTables(results []allocResult) []harness.Table {
	table := report.Table{Header: []string{
		"program", "time", "events", "bytes: overlap %", "ideal", "aim", "", "objects: overlap %", "ideal",
		"all bytes", "all objects", "furthest off",
	}}
	control := report.Table{Header: []string{
		"program", "time", "buffers", "events", "bytes: overlap %", "ideal", "objects: overlap %", "ideal",
		"all objects", "furthest off",
	}}
	points := func(o float64) string { return fmt.Sprintf("%.1f", o) }
	for _, r := range results {
		furthest := fmt.Sprintf("%s %+.1f points", r.furthest, 100*r.off)
		if r.buffers != "" {
			control.Add(r.program, r.length.String(), r.buffers, fmt.Sprint(r.events), points(r.overlap.Bytes),
				points(r.ideal.Bytes),
				points(r.overlap.Objects), points(r.ideal.Objects), change(r.objects), furthest)
			continue
		}
		table.Add(r.program, r.length.String(), fmt.Sprint(r.events),
			points(r.overlap.Bytes), points(r.ideal.Bytes), points(r.ideal.Bytes-allocAim), report.Verdict(r.reached()),
			points(r.overlap.Objects), points(r.ideal.Objects), change(r.bytes), change(r.objects), furthest)
	}
	tables := []harness.Table{
		{Marker: "alloc", Table: table}, {Marker: "alloc-classes", Table: allocClassTable(results)},
		{Marker: "alloc-buffers", Table: control},
	}
	return slices.DeleteFunc(tables, func(t harness.Table) bool { return len(t.Rows) == 0 })
}

// allocClassTable is the breakdown of the longest recording of each program: figure 10 of Inoue and
// Nakatani.
func allocClassTable(results []allocResult) report.Table {
	table := report.Table{Header: []string{
		"program", "class", "objects, % of all: sampled", "exact", "bytes, % of all: sampled", "exact",
	}}
	for _, r := range results {
		if r.buffers != "" || r.length != slices.Max(allocLengths) {
			continue
		}
		for _, c := range r.classes {
			table.Add(r.program, "`"+c.name+"`", inPercent(c.objects[0]), inPercent(c.objects[1]),
				inPercent(c.bytes[0]), inPercent(c.bytes[1]))
		}
	}
	return table
}

// change formats a ratio as its difference to 1, in percent.
func change(ratio float64) string { return fmt.Sprintf("%+.1f %%", 100*(ratio-1)) }

// allocWarmups is the factor on the warm-up time of guests with known truth: compiled code does not
// allocate objects that escape analysis finds local to a method, so real programs must be compiled.
const allocWarmups = 10

// recordAllocations records a working program. Samples and exact counts cover the same time, so it
// does not matter when the recording begins and ends.
func (m meter) recordAllocations(ctx context.Context, t allocTrial) (r allocResult, err error) {
	guest, err := suite.Start(ctx, t.jdk, t.program, t.flags()...)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, guest.Close()) }()
	if _, err := guest.RunFor(allocWarmups * m.how.warmup); err != nil {
		return r, err
	}
	run, err := m.agent.Start(ctx, profiler.Options{
		PID: guest.PID(), Duration: t.length, Extra: []string{"-e", "alloc", "--exact-alloc"},
	})
	if err != nil {
		return r, err
	}
	work := harness.StartWork(ctx, guest.RunFor)
	recording, err := run.Finish()
	_, failed := work.Finish()
	if err := errors.Join(err, failed); err != nil {
		return r, err
	}
	return t.judge(recording)
}
