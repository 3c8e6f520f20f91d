package sink

import (
	"errors"
	"math/bits"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
)

// Content is what a profile is made of: time, calls, or both; or else events of one kind, see
// OfEvents, and perhaps calls.
type Content uint32

const (
	// Time is where CPU time was spent: the sample types samples/count and cpu/nanoseconds.
	Time Content = 1 << iota
	// CallCounts is how often calls were made: the sample type calls/count.
	CallCounts
	// Entries is how often samples found a context newly entered, which is Whaley's weight of an
	// edge (Java Grande 2000): the sample type entries/count. It is there together with Time only.
	Entries
	// Slow is the time of the slowest invocations of a method: the sample type slow/nanoseconds. It
	// is there together with wall time only.
	Slow
)

// ContentOf returns what was recorded in p: time, unless nothing but calls was; and entries where
// they were counted. If there are neither samples nor calls, it is the first of Kinds, if there is
// one.
func ContentOf(p *profile.Profile) Content {
	if p.Unit == profile.CallCounts {
		return CallCounts
	}
	var content Content
	for _, proc := range p.Processes {
		if len(proc.Calls) > 0 {
			content |= CallCounts
		}
		for _, thread := range proc.Threads {
			if thread.Tree != nil && thread.Tree.Total() > 0 {
				content |= Time
			}
			if thread.Tree != nil && thread.Tree.EdgeTotal() > 0 {
				content |= Time | Entries
			}
		}
	}
	if content != 0 {
		return content
	}
	if kinds := Kinds(p); len(kinds) > 0 {
		return OfEvents(kinds[0])
	}
	return Time
}

// includes reports whether what is known of a subject of profile.Extent belongs to the content.
func (c Content) includes(subject string) bool {
	kind, ofEvents := c.Events()
	switch subject {
	case profile.SubjectCPU:
		return c&Time != 0
	case profile.SubjectCalls:
		return c&CallCounts != 0
	}
	return ofEvents && kind.String() == subject
}

// entries says that there is a column for them.
func (c Content) entries() bool { return c&(Time|Entries) == Time|Entries }

// sampleTypes returns the columns of values that c takes, which values fills, and the column to
// show first.
func (c Content) sampleTypes() (types []*pprof.ValueType, first string) {
	kind, ofEvents := c.Events()
	if ofEvents {
		types, first = stored.EventTypes(kind)
	}
	if c&Time != 0 {
		types = append(types, &pprof.ValueType{Type: stored.TypeSamples, Unit: stored.UnitCount},
			&pprof.ValueType{Type: stored.TypeCPU, Unit: stored.UnitTime})
		first = stored.TypeCPU
	}
	if c&CallCounts != 0 {
		types = append(types, &pprof.ValueType{Type: stored.TypeCalls, Unit: stored.UnitCount})
		if !ofEvents {
			first = stored.TypeCalls
		}
	}
	if c&Slow != 0 {
		types = append(types, &pprof.ValueType{Type: stored.TypeSlow, Unit: stored.UnitTime})
	}
	if c.entries() { // the last one: see Windows.Add
		types = append(types, &pprof.ValueType{Type: stored.TypeEntries, Unit: stored.UnitCount})
	}
	return types, first
}

// Types are the sample types of a profile with the content.
func (c Content) Types() []*pprof.ValueType {
	types, _ := c.sampleTypes()
	return types
}

// values are those of one sample that is no event: of the sampling event, with the entries of its
// context, or of calls.
func (c Content) values(samples, cpu, calls, entries int64) []int64 {
	values := make([]int64, 0, 4)
	if kind, ok := c.Events(); ok {
		values = make([]int64, len(kind.Values())+1)
	}
	if c&Time != 0 {
		values = append(values, samples, cpu)
	}
	if c&CallCounts != 0 {
		values = append(values, calls)
	}
	if c&Slow != 0 {
		values = append(values, 0)
	}
	if c.entries() {
		values = append(values, entries)
	}
	return values
}

// slowValues are those of a part of a slow invocation.
func (c Content) slowValues(time int64) []int64 {
	values := c.values(0, 0, 0, 0)
	values[len(values)-1] = time // events have no entries
	return values
}

// eventContent is the first of the bits of a Content that stand for kinds of events.
const eventContent = 8

// OfEvents is the content that is the events of one kind.
func OfEvents(kind profile.EventKind) Content { return 1 << (eventContent + kind) }

// Events returns the kind of events that c is of; ok is false if it is of time or calls.
func (c Content) Events() (kind profile.EventKind, ok bool) {
	set := c >> eventContent
	if set == 0 {
		return 0, false
	}
	return profile.EventKind(bits.TrailingZeros32(uint32(set))), true
}

// eventValues are those of a sample of events, given the values of the kind and how many events it
// is of.
func (c Content) eventValues(values []int64, events int64) []int64 {
	values = append(values, events)
	if c&CallCounts != 0 {
		values = append(values, 0)
	}
	if c&Slow != 0 {
		values = append(values, 0)
	}
	return values
}

// check says whether c fits into one file. Entries with events are no contradiction: they are there
// together with Time only. Calls may be with time off the CPU.
func (c Content) check() error {
	besides := Entries
	if kind, ok := c.Events(); ok && (kind == profile.OffCPU || kind == profile.Wall) {
		besides |= CallCounts | Slow
	}
	if c>>eventContent != 0 && bits.OnesCount16(uint16(c&^besides)) > 1 {
		return errors.New("a profile contains one kind of events, or CPU time and calls: write each to a separate file")
	}
	return nil
}

// Kinds returns the kinds of events that were recorded in p, whether any happened or not, in their
// order. Each is for a file of its own, next to that of time and calls:
//
//	for _, kind := range sink.Kinds(p) {
//		err := sink.Write(kind.String()+".pb.gz", nil, p, sink.OfEvents(kind))
//	}
func Kinds(p *profile.Profile) []profile.EventKind {
	var recorded [profile.EventKinds]bool
	for _, proc := range p.Processes {
		for _, e := range proc.Events {
			recorded[e.Kind] = true
		}
	}
	var kinds []profile.EventKind
	for kind, ok := range recorded {
		if ok {
			kinds = append(kinds, profile.EventKind(kind))
		}
	}
	return kinds
}

// eventPeriod returns the type of the period and the period of a kind. What one event stands for
// differs from event to event, and the values say it already, so the period is 1. The types of
// allocations and locks are those that Go's own profiles have, by which their readers know them
// (runtime/pprof, protoMutex and heap profiles).
func eventPeriod(kind profile.EventKind) (*pprof.ValueType, int64) {
	t := stored.MainValue(kind)
	switch kind {
	case profile.Allocations:
		t.Type = "space"
	case profile.Locks:
		t = kind.Values()[1] // contentions
	}
	return &pprof.ValueType{Type: t.Type, Unit: t.Unit}, 1
}
