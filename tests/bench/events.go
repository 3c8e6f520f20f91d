package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/breakpoints"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
)

// defaultEventGuests are programs of the suite, and the lockers.
var defaultEventGuests = []string{"Xalan", "H2", "Jython", "Luindex", "Locking", "Waiting"}

// An eventManner says how much to measure of what events cost.
type eventManner struct {
	rounds  int
	segment time.Duration // a recording, from its beginning, and what stands beside it
	judged  bool          // whether there is an aim
}

var (
	longEvents = eventManner{
		rounds:  9,               // fewer have one that is far off in their confidence interval
		segment: 6 * time.Second, // the agent's first rest of a probe that it cannot pay is one of 5 s, after a second
		judged:  true,
	}
	shortEvents = eventManner{rounds: 2, segment: 500 * time.Millisecond}
)

// events measures what each kind of events costs each guest.
func (b bench) events(ctx context.Context) ([]harness.Table, error) {
	var costs []eventCost
	for _, name := range b.eventGuests {
		of := kindsOf(name, b.kinds)
		if len(of) == 0 {
			continue
		}
		turns, err := b.eventSegments(ctx, name, of)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for _, k := range of {
			c := eventCostOf(turns, name, k.name)
			if k.certain && c.account.hits == 0 {
				return nil, fmt.Errorf("%s: -e %s has recorded nothing: is the JVM's library stripped?", name, k.name)
			}
			fmt.Fprintf(b.out, "%s, %s: CPU %v, wall %v, nobody %v\n", name, k.name, c.cpu, c.wall, c.control)
			costs = append(costs, c)
		}
	}
	return []harness.Table{
		{Marker: "events", Table: eventTable(costs, b.how.events.judged)},
		{Marker: "eventcosts", Table: eventOwnTable(costs)},
	}, nil
}

// An eventSegment is what a guest used for a fixed amount of work, and what was recorded meanwhile,
// if anything was.
type eventSegment struct {
	usage
	account eventAccount  // what the agent said of the recording
	agent   time.Duration // CPU time of the agent
}

// eventSegments has all kinds recorded in turn of one guest.
func (b bench) eventSegments(
	ctx context.Context, name string, kinds []eventKind,
) (*harness.Turns[string, eventSegment], error) {
	guest, err := b.startWorker(ctx, name)
	if guest != nil {
		defer guest.Close()
	}
	if err != nil {
		return nil, err
	}
	amount, err := amountFor(guest, b.how.events.segment)
	if err != nil {
		return nil, err
	}
	byName := map[string]eventKind{}
	var names []string
	for _, k := range kinds {
		byName[k.name] = k
		names = append(names, k.name)
	}
	off := func() (s eventSegment, err error) {
		s.usage, err = usageOf(guest, amount)
		return s, err
	}
	on := func(name string) (eventSegment, error) {
		s, err := b.recorded(ctx, guest, byName[name], amount)
		if err != nil {
			return s, fmt.Errorf("%s: %w", name, err)
		}
		return s, nil
	}
	return harness.Alternate(harness.Rotated(b.how.events.rounds, names), off, on, nil)
}

// recorded runs a segment while events are recorded.
func (b bench) recorded(ctx context.Context, guest worker, kind eventKind, amount int) (s eventSegment, err error) {
	own, recording, err := b.watch(ctx, profiler.Options{PID: guest.PID(), Extra: kind.flags},
		(*profiler.AgentRun).WaitAttached, nil, func() error {
			var err error
			s.usage, err = usageOf(guest, amount)
			return err
		})
	if err != nil {
		return s, err
	}
	s.agent = own.cpu
	s.account, err = readEventAccount(recording.Profile)
	return s, err
}

// An eventKind is what is recorded of a guest, at the agent's defaults.
type eventKind struct {
	name  string
	flags []string // flags of record
	// certain: every program of the suite has such events in every segment, so that a recording
	// without any has failed.
	certain bool
	locks   bool // lockers are recorded, too
}

// eventKinds are those that need no counters of the CPU. The probes that values are read at are
// named by how often the suite passes them with the serial collector: whenever a thread gets a
// buffer for its objects, hundreds or thousands of times a second; and whenever a collection moves
// an object, so often that the traps alone are beyond the budget and the agent has to take the
// probe away.
var eventKinds = []eventKind{
	{name: "alloc", flags: []string{"-e", "alloc"}, certain: true},
	{name: "lock", flags: []string{"-e", "lock"}, locks: true},
	{name: "monitor-enters", flags: []string{"-e", "lock", "--monitor-enters", breakpoints.Flag}, locks: true},
	{name: "safepoint", flags: []string{"-e", "safepoint"}},
	{name: "page-faults", flags: []string{"-e", "page-faults"}},
	{name: "value-frequent", flags: valueFlags("libjvm.so:func:AllocTracer::send_allocation_in_new_tlab=arg4"),
		certain: true},
	{name: "value-flood", flags: valueFlags("libjvm.so:func:DefNewGeneration::copy_to_survivor_space=arg2:class")},
}

func valueFlags(probe string) []string { return []string{"-e", "value", "--probe", probe} }

func eventKindName(k eventKind) string { return k.name }

// kindsOf returns what is recorded of a guest: of a locker only kinds of locks.
func kindsOf(guest string, kinds []eventKind) []eventKind {
	if _, ok := lockers[guest]; !ok {
		return kinds
	}
	return slices.DeleteFunc(slices.Clone(kinds), func(k eventKind) bool { return !k.locks })
}
