package events

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/tests/stacks"
)

// A Row is a sample of a recording of events: those of one thread in one context with the same
// labels. Its Count is how many events were observed.
type Row struct {
	stacks.Stack
	Labels
	TID    int64
	Values []float64 // values of the types that Read was asked for, in that order
}

// Labels are what a row says of its events. What a kind of event has no use for is empty.
type Labels struct {
	Class, Generation, Kind, Place, Field, Probe, Value, Cause, State string

	Waker  string // who ended the wait: a thread, or what the kernel was at
	Offset int64  // bytes
}

// Also are causes that stand for others: of selectors, which are event loops, and of busy threads,
// with a quota.
var Also = map[string]string{"poll": "idle", "runnable": "throttled"}

// Delayed reports whether a wait has a cause that lengthens every other: a CPU, or the end of a
// safepoint, came late.
func (l Labels) Delayed() bool {
	switch l.Cause {
	case "runnable", "throttled", "stopped", "safepoint":
		return true
	}
	return false
}

// Exact is the kind of rows that count every allocation.
const Exact = "exact"

// eventCount is the type of the number of observed events, which recordings of all kinds have.
const eventCount = "events"

// Read returns the rows of p, with their values of some sample types. It fails if p does not have
// one of these.
func Read(p *profile.Profile, types ...string) ([]Row, error) {
	columns := make([]int, 0, len(types))
	for _, name := range append(slices.Clone(types), eventCount) {
		i := slices.IndexFunc(p.SampleType, func(t *profile.ValueType) bool { return t.Type == name })
		if i < 0 {
			return nil, fmt.Errorf("the recording has no values of type %q: %s", name, typesOf(p))
		}
		columns = append(columns, i)
	}
	count := columns[len(types)]
	rows := make([]Row, 0, len(p.Sample))
	for _, sample := range p.Sample {
		row := Row{Labels: labelsOf(sample)}
		if ids := sample.NumLabel["tid"]; len(ids) > 0 {
			row.TID = ids[0]
		}
		row.Frames, row.Count, row.Thread = stacks.FramesOf(sample), sample.Value[count], label(sample, "thread")
		for _, column := range columns[:len(types)] {
			row.Values = append(row.Values, float64(sample.Value[column]))
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func typesOf(p *profile.Profile) string {
	var types []string
	for _, t := range p.SampleType {
		types = append(types, t.Type)
	}
	return "it has " + strings.Join(types, ", ")
}

func labelsOf(sample *profile.Sample) Labels {
	l := Labels{
		Class: label(sample, "class"), Generation: label(sample, "generation"), Kind: label(sample, "kind"),
		Place: label(sample, "place"), Field: label(sample, "field"), Probe: label(sample, "probe"),
		Value: label(sample, "value"), Cause: label(sample, "cause"), State: label(sample, "state"),
		Waker: label(sample, "waker"),
	}
	if offsets := sample.NumLabel["offset"]; len(offsets) > 0 {
		l.Offset = offsets[0]
	}
	return l
}

func label(sample *profile.Sample, key string) string {
	if values := sample.Label[key]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// Where returns the rows that are wanted.
func Where(rows []Row, wanted func(Row) bool) []Row {
	var some []Row
	for _, row := range rows {
		if wanted(row) {
			some = append(some, row)
		}
	}
	return some
}

// Split tells rows that count every allocation from those that are estimated from samples.
func Split(rows []Row) (sampled, exact []Row) {
	return Where(rows, func(r Row) bool { return r.Kind != Exact }),
		Where(rows, func(r Row) bool { return r.Kind == Exact })
}

// Own returns the rows of the programs' own threads.
func Own(rows []Row) []Row {
	return Where(rows, func(r Row) bool { return strings.HasPrefix(r.Thread, Thread) })
}

// InMethod returns the rows whose innermost Java method is that one.
func InMethod(rows []Row, method string) []Row {
	return Where(rows, func(r Row) bool { return r.Self(method) })
}

// Count returns how many events were observed.
func Count(rows []Row) (n int64) {
	for _, row := range rows {
		n += row.Count
	}
	return n
}

// Sum adds up one of the values.
func Sum(rows []Row, value int) (sum float64) {
	for _, row := range rows {
		sum += row.Values[value]
	}
	return sum
}
