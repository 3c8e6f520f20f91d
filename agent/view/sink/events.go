package sink

import (
	"errors"
	"fmt"
	"maps"
	"math"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

// eventLabels makes the labels of the events of one kind in one process. Rows that agree in them
// share their maps.
type eventLabels struct {
	kind    profile.EventKind
	process map[string][]string
	numbers map[string][]int64
	known   map[eventLabelsKey]*pprof.Sample // samples of which only the labels are set
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
		of = l.sampleFor(row)
		l.known[key] = of
	}
	sample.Label, sample.NumLabel, sample.NumUnit = of.Label, of.NumLabel, of.NumUnit
}

// sampleFor makes the labels of a row.
func (l *eventLabels) sampleFor(row profile.EventRow) *pprof.Sample {
	labels, numbers := maps.Clone(l.process), maps.Clone(l.numbers)
	place, what, class, field, value := stored.LabelPlace, stored.LabelKind, stored.LabelClass, stored.LabelField,
		stored.LabelValue
	switch l.kind {
	case profile.Allocations:
		place = stored.LabelGeneration
	case profile.Locks:
		field, value = stored.LabelHolder, stored.LabelHolderThread
	case profile.OffCPU, profile.Wall:
		place, what, class, field, value = stored.LabelState, stored.LabelCause, stored.LabelWaker,
			stored.LabelWakerComm, stored.LabelBasis
		if row.Field != "" {
			numbers[stored.LabelWakerPID] = []int64{int64(row.Offset)}
		}
	}
	setLabel(labels, stored.LabelThread, row.Thread)
	setLabel(labels, class, row.Class)
	setLabel(labels, place, row.Place)
	setLabel(labels, what, row.What)
	setLabel(labels, stored.LabelCollector, row.Collector)
	setLabel(labels, field, row.Field)
	setLabel(labels, stored.LabelProbe, row.Probe)
	setLabel(labels, value, row.Value)
	numbers[stored.LabelTID] = []int64{int64(row.TID)}
	of := &pprof.Sample{Label: labels, NumLabel: numbers}
	if l.kind == profile.Faults && row.Class != "" { // without an object there is nothing that it is the offset in
		numbers[stored.LabelOffset] = []int64{int64(row.Offset)}
		// Without a unit the format drops an offset of 0.
		of.NumUnit = map[string][]string{stored.LabelOffset: {"bytes"}}
	}
	return of
}

// events appends the events of one kind of a process, in the order of their rows.
func (b *pprofBuilder) events(proc *profile.Process, e *profile.Events) error {
	columns := make([][]int64, len(e.Kind.Values()))
	for i := range columns {
		whole, err := b.wholeValues(proc, e, i)
		if err != nil {
			return fmt.Errorf("round %s: %w", e.Kind.Values()[i].Type, err)
		}
		columns[i] = whole
	}
	var (
		labels = newEventLabels(b, proc, e.Kind)
		stack  []*pprof.Location
		at     cct.NodeID // node that stack belongs to
	)
	for i, row := range e.Rows {
		value := make([]int64, 0, len(columns)+3)
		something := row.Events > 0
		for _, whole := range columns {
			value = append(value, whole[i])
			something = something || whole[i] != 0
		}
		if !something {
			continue
		}
		if row.Events > math.MaxInt64 {
			return fmt.Errorf("%d events are too many for the format", row.Events)
		}
		if e.Tree == nil {
			row.Context = cct.Root
		}
		if stack == nil || row.Context != at {
			stack, at = b.stack(e.Tree, row.Context), row.Context
		}
		sample := &pprof.Sample{Location: stack, Value: b.content.eventValues(value, int64(row.Events))}
		labels.set(sample, row)
		if draw := drawOf(e.Kind, &row); draw > 0 {
			sample.NumLabel = maps.Clone(sample.NumLabel)
			sample.NumLabel[stored.LabelDraw] = []int64{draw}
		}
		b.profile.Sample = append(b.profile.Sample, sample)
	}
	return nil
}

// drawOf is what one draw of a row of waits stands for, on average, in ns; 0 if the row is exact.
func drawOf(kind profile.EventKind, row *profile.EventRow) int64 {
	time, squares := row.Values[kind.Main()], row.Values[profile.DrawSquares]
	if kind != profile.OffCPU && kind != profile.Wall || !(time > 0) || !(squares > 0) {
		return 0
	}
	return int64(math.Ceil(min(squares/time, math.MaxInt64/2)))
}

// wholeValues rounds one value of all rows, so that the sum stays. Sums of what probes saw are of
// any sign, and of pointers or hashes they may be too large to be stored: then they are 0, and a
// comment says so.
func (b *pprofBuilder) wholeValues(proc *profile.Process, e *profile.Events, index int) ([]int64, error) {
	values := make([]float64, len(e.Rows))
	for i, row := range e.Rows {
		values[i] = row.Values[index]
	}
	if e.Kind.Values()[index] != stored.ValueSum {
		return apportion(values)
	}
	whole, err := apportionSigned(values)
	if errors.Is(err, errTooLarge) {
		b.accounts.round(stored.Rounding{Comm: proc.Comm, PID: int64(proc.PID)})
		return make([]int64, len(values)), nil
	}
	return whole, err
}

// apportionSigned is apportion for values of any sign: those below zero are rounded on their own.
func apportionSigned(values []float64) ([]int64, error) {
	above, below := make([]float64, len(values)), make([]float64, len(values))
	for i, v := range values {
		if v < 0 {
			below[i] = -v
		} else {
			above[i] = v // also what is no number
		}
	}
	whole, err := apportion(above)
	if err != nil {
		return nil, err
	}
	negative, err := apportion(below)
	if err != nil {
		return nil, err
	}
	for i, n := range negative {
		whole[i] -= n
	}
	return whole, nil
}

// countEvents is how many events were observed.
func countEvents(e *profile.Events) (n uint64) {
	for _, row := range e.Rows {
		n += row.Events
	}
	return n
}
