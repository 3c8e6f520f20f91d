package sink

import (
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	pprof "github.com/google/pprof/profile"
)

// eventNames are what people call the events of a kind, and the flags of record that ask for them.
var eventNames = [profile.EventKinds]struct{ events, record string }{
	profile.Allocations: {"allocations", "-e alloc"},
	profile.Locks:       {"locks", "-e lock"},
	profile.Values:      {"values", "-e value --probe=SPEC"},
	profile.Pauses:      {"safepoints", "-e safepoint"},
	profile.Faults:      {"page faults", "-e page-faults"},
	profile.Cycles:      {"cycles", "-e cpi"},
}

// EventKindOf returns the kind of events that a stored profile is of; ok is false if it is of none.
func EventKindOf(p *pprof.Profile) (kind profile.EventKind, ok bool) {
	for kind := range profile.EventKinds {
		types, _ := eventTypes(kind)
		if !slices.ContainsFunc(types, func(t *pprof.ValueType) bool { return columnOf(p, t) < 0 }) {
			return kind, true
		}
	}
	return 0, false
}

// columnOf returns the column of the values of a type, or -1.
func columnOf(p *pprof.Profile, of *pprof.ValueType) int {
	return slices.IndexFunc(p.SampleType, func(t *pprof.ValueType) bool { return t.Type == of.Type && t.Unit == of.Unit })
}

// EventView returns the view for the events in a stored profile, or nil if it is not of events.
func EventView(p *pprof.Profile) func(io.Writer, *pprof.Profile, *ViewOptions) error {
	kind, ok := EventKindOf(p)
	if !ok {
		return nil
	}
	switch kind {
	case profile.Allocations:
		return Allocations
	case profile.Locks:
		return Locks
	case profile.Values:
		return Values
	case profile.Pauses:
		return Safepoints
	case profile.Faults:
		return Faults
	}
	return CPI
}

// storedEvents are the samples of a stored profile that is of events.
type storedEvents struct {
	kind    profile.EventKind
	stacks  *stacks
	columns []int      // of the values
	events  int        // the column of events
	effect  float64    // what variances are multiplied by: 1 unless part of the time was not observed, or events were lost
	stated  *statedSum // by the comments; nil if they say nothing
}

// readEvents fails if p is not of that kind of events, or if its values cannot be added up.
func readEvents(p *pprof.Profile, kind profile.EventKind) (*storedEvents, error) {
	if is, ok := EventKindOf(p); !ok || is != kind {
		name := eventNames[kind]
		return nil, fmt.Errorf("the profile has no %s: record some with vmprof-agent record %s", name.events, name.record)
	}
	e := &storedEvents{kind: kind, effect: 1}
	types, _ := eventTypes(kind)
	for i, t := range types {
		if i >= len(kind.Values()) || kind.Values()[i] != valueSum {
			s, err := newStacks(p, t.Type)
			if err != nil {
				return nil, err
			}
			e.stacks = s
		}
		e.columns = append(e.columns, columnOf(p, t))
	}
	e.events = e.columns[len(types)-1]
	e.columns = e.columns[:len(types)-1]
	e.widen()
	return e, nil
}

// all yields the samples to keep that say something, with it.
func (e *storedEvents) all() iter.Seq2[*pprof.Sample, tally] { return e.those(e.stacks.keep) }

// those yields the samples to keep, nil for all.
func (e *storedEvents) those(keep func(*pprof.Sample) bool) iter.Seq2[*pprof.Sample, tally] {
	return func(yield func(*pprof.Sample, tally) bool) {
		for _, sample := range e.stacks.profile.Sample {
			if keep != nil && !keep(sample) {
				continue
			}
			t := tally{events: float64(sample.Value[e.events])}
			some := t.events != 0
			for i, column := range e.columns {
				t.values[i] = float64(sample.Value[column])
				some = some || t.values[i] != 0
			}
			if main := t.values[e.kind.Main()]; main != 0 && !counted(sample) { // effect may be infinite
				t.variance = e.effect * main * main / max(t.events, 1)
			}
			if some && !yield(sample, t) {
				return
			}
		}
	}
}

// site returns the guest's method in which an event happened: the innermost that is neither native nor the VM's own, nor of
// the class library's locks if one of those made the thread wait; or else whatever is innermost but the kernel.
func (e *storedEvents) site(sample *pprof.Sample) string {
	outside := ""
	for _, loc := range sample.Location {
		for _, f := range e.stacks.at(loc) {
			if !f.Native && !strings.HasPrefix(f.Name, "[") && !(e.kind == profile.Locks && parks(f.Name)) {
				return f.Name
			}
			if outside == "" && f.how&kernel == 0 {
				outside = f.Name
			}
		}
	}
	if outside == "" {
		return e.stacks.edge(sample).Callee.Name
	}
	return outside
}

// parks says of a method that it is part of how threads of Java wait for each other, not of why.
func parks(method string) bool {
	return strings.HasPrefix(method, "jdk.internal.misc.Unsafe.park") || strings.HasPrefix(method, "sun.misc.Unsafe.park") ||
		strings.HasPrefix(method, "java.util.concurrent.")
}

// contended says that a sample is no wait for work.
func contended(sample *pprof.Sample) bool { return label(sample, labelKind) != profile.WaitForWork }
