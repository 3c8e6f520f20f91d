package sink

import (
	"maps"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	pprof "github.com/google/pprof/profile"
)

// eventLabels makes the labels of the events of one kind in one process. Rows that agree in them share their maps.
type eventLabels struct {
	kind    profile.EventKind
	process map[string][]string
	numbers map[string][]int64
	known   map[eventLabelsKey]*pprof.Sample // of which only the labels are set
}

type eventLabelsKey struct {
	tid    int
	thread string
	profile.EventLabels
}

func newEventLabels(b *pprofBuilder, proc *profile.Process, kind profile.EventKind) *eventLabels {
	return &eventLabels{kind, processLabels(proc), b.numbers(proc), make(map[eventLabelsKey]*pprof.Sample)}
}

// set gives a sample the labels of its row.
func (l *eventLabels) set(sample *pprof.Sample, row profile.EventRow) {
	key := eventLabelsKey{row.TID, row.Thread, row.EventLabels}
	of := l.known[key]
	if of == nil {
		of = l.of(row)
		l.known[key] = of
	}
	sample.Label, sample.NumLabel, sample.NumUnit = of.Label, of.NumLabel, of.NumUnit
}

// of makes the labels of a row.
func (l *eventLabels) of(row profile.EventRow) *pprof.Sample {
	labels, numbers := maps.Clone(l.process), maps.Clone(l.numbers)
	place := labelPlace
	if l.kind == profile.Allocations {
		place = labelGeneration
	}
	setLabel(labels, labelThread, row.Thread)
	setLabel(labels, labelClass, row.Class)
	setLabel(labels, place, row.Place)
	setLabel(labels, labelKind, row.What)
	setLabel(labels, labelCollector, row.Collector)
	setLabel(labels, labelField, row.Field)
	setLabel(labels, labelProbe, row.Probe)
	setLabel(labels, labelValue, row.Value)
	numbers[labelTID] = []int64{int64(row.TID)}
	of := &pprof.Sample{Label: labels, NumLabel: numbers}
	if l.kind == profile.Faults && row.Class != "" { // without an object there is nothing that it is the offset in
		numbers[labelOffset] = []int64{int64(row.Offset)}
		// Without a unit the format drops an offset of 0.
		of.NumUnit = map[string][]string{labelOffset: {"bytes"}}
	}
	return of
}
