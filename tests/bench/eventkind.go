package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/tests/breakpoints"
)

// An eventKind is what is recorded of a guest, at the agent's defaults.
type eventKind struct {
	name  string
	flags []string // of record
	// certain: every program of the suite has such events in every segment, so that a recording without any has failed.
	certain bool
	locks   bool // lockers are recorded, too
}

// eventKinds are those that need no counters of the CPU. The probes that values are read at are named by how often the
// suite passes them with the serial collector: whenever a thread gets a buffer for its objects, hundreds or thousands of
// times a second; and whenever a collection moves an object, so often that the traps alone are beyond the budget and the
// agent has to take the probe away.
var eventKinds = []eventKind{
	{name: "alloc", flags: []string{"-e", "alloc"}, certain: true},
	{name: "lock", flags: []string{"-e", "lock"}, locks: true},
	{name: "monitor-enters", flags: []string{"-e", "lock", "--monitor-enters", breakpoints.Flag}, locks: true},
	{name: "safepoint", flags: []string{"-e", "safepoint"}},
	{name: "page-faults", flags: []string{"-e", "page-faults"}},
	{name: "value-frequent", flags: valueFlags("libjvm.so:func:AllocTracer::send_allocation_in_new_tlab=arg4"), certain: true},
	{name: "value-flood", flags: valueFlags("libjvm.so:func:DefNewGeneration::copy_to_survivor_space=arg2:class")},
}

func valueFlags(probe string) []string { return []string{"-e", "value", "--probe", probe} }

// eventKindNames are the names of all kinds, as the command line has them.
func eventKindNames() string {
	var names []string
	for _, k := range eventKinds {
		names = append(names, k.name)
	}
	return strings.Join(names, ",")
}

// chooseKinds returns the kinds that are named in a list, in their own order.
func chooseKinds(list string) ([]eventKind, error) {
	names := strings.Split(list, ",")
	var chosen []eventKind
	for _, k := range eventKinds {
		if i := slices.Index(names, k.name); i >= 0 {
			names = slices.Delete(names, i, i+1)
			chosen = append(chosen, k)
		}
	}
	if len(names) > 0 {
		return nil, fmt.Errorf("-kinds: there is no kind of events %q: choose from %s", names[0], eventKindNames())
	}
	return chosen, nil
}

// kindsOf returns what is recorded of a guest: of a locker only kinds of locks.
func kindsOf(guest string, kinds []eventKind) []eventKind {
	if _, ok := lockers[guest]; !ok {
		return kinds
	}
	return slices.DeleteFunc(slices.Clone(kinds), func(k eventKind) bool { return !k.locks })
}
