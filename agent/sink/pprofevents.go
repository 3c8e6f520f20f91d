package sink

import (
	"errors"
	"fmt"
	"math"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/cct"
)

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
		at     cct.NodeID // whose stack that is
	)
	for i, row := range e.Rows {
		value := make([]int64, 0, len(columns)+1)
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
		sample := &pprof.Sample{Location: stack, Value: append(value, int64(row.Events))}
		labels.set(sample, row)
		b.profile.Sample = append(b.profile.Sample, sample)
	}
	return nil
}

// wholeValues rounds one value of all rows, so that the sum stays. Sums of what probes saw are of any sign, and of
// pointers or hashes they may be too large to be stored: then they are 0, and a comment says so.
func (b *pprofBuilder) wholeValues(proc *profile.Process, e *profile.Events, index int) ([]int64, error) {
	values := make([]float64, len(e.Rows))
	for i, row := range e.Rows {
		values[i] = row.Values[index]
	}
	if e.Kind.Values()[index] != valueSum {
		return apportion(values)
	}
	whole, err := apportionSigned(values)
	if errors.Is(err, errTooLarge) {
		b.accounts.round(fmt.Sprintf("%s (pid %d): the sums of the values are too large for the format and left out",
			printable(proc.Comm), proc.PID))
		return make([]int64, len(values)), nil
	}
	return whole, err
}

// valueSum is the only value that may be negative.
var valueSum = profile.Values.Values()[1]

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
