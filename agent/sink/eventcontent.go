package sink

import (
	"errors"
	"math/bits"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	pprof "github.com/google/pprof/profile"
)

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
	return profile.EventKind(bits.TrailingZeros16(uint16(set))), true
}

// check says whether c fits into one file. Entries beside events are no contradiction: they are there beside Time only.
func (c Content) check() error {
	if c>>eventContent != 0 && bits.OnesCount16(uint16(c&^Entries)) > 1 {
		return errors.New("a profile has events of one kind, or time and calls: write each to a file of its own")
	}
	return nil
}

// Kinds returns the kinds of events that were recorded in p, whether any happened or not, in their order. Each is for a
// file of its own, beside that of time and calls:
//
//	for _, kind := range sink.Kinds(p) {
//		err := sink.WriteOf(kind.String()+".pb.gz", nil, p, sink.OfEvents(kind))
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

// typeEvents is how many observed events the values of a sample were estimated from.
const typeEvents = "events"

// mainValue is the value of a kind that readers are to see first.
func mainValue(kind profile.EventKind) profile.ValueType { return kind.Values()[kind.Main()] }

// eventTypes returns the columns of values of a kind, and the one that readers are to see first.
func eventTypes(kind profile.EventKind) (types []*pprof.ValueType, first string) {
	for _, t := range kind.Values() {
		types = append(types, &pprof.ValueType{Type: t.Type, Unit: t.Unit})
	}
	types = append(types, &pprof.ValueType{Type: typeEvents, Unit: unitCount})
	return types, mainValue(kind).Type
}

// eventPeriod returns the type of the period and the period of a kind. What one event stands for differs from event to
// event, and the values say it already, so the period is 1. The types of allocations and locks are those that Go's own
// profiles have, by which their readers know them (runtime/pprof, protoMutex and heap profiles).
func eventPeriod(kind profile.EventKind) (*pprof.ValueType, int64) {
	t := mainValue(kind)
	switch kind {
	case profile.Allocations:
		t.Type = "space"
	case profile.Locks:
		t = kind.Values()[1] // contentions
	}
	return &pprof.ValueType{Type: t.Type, Unit: t.Unit}, 1
}
