package main

import (
	"context"
	"errors"
	"fmt"
	"time"

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

// An eventSegment is what a guest used for a fixed amount of work, and what was recorded meanwhile.
type eventSegment struct {
	kind string // empty: nobody watched
	usage
	account eventAccount  // what the agent said of the recording
	agent   time.Duration // CPU time of the agent
}

// events measures what each kind of events costs each guest.
func (b bench) events(ctx context.Context, names []string, kinds []eventKind) ([]eventCost, error) {
	var costs []eventCost
	for _, name := range names {
		of := kindsOf(name, kinds)
		if len(of) == 0 {
			continue
		}
		segments, err := b.eventSegments(ctx, name, of)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for _, k := range of {
			c := eventCostOf(segments, name, k.name)
			if k.certain && c.account.hits == 0 {
				return nil, fmt.Errorf("%s: -e %s has recorded nothing: is the JVM's library stripped?", name, k.name)
			}
			fmt.Fprintf(b.out, "%s, %s: CPU %v, wall %v, nobody %v\n", name, k.name, c.cpu, c.wall, c.control)
			costs = append(costs, c)
		}
	}
	return costs, b.print(eventTable(costs, b.how.events.judged), eventOwnTable(costs))
}

// eventSegments runs off, a kind, off, another kind, ... beside one guest, and ends with off. In every round another kind is
// the first.
func (b bench) eventSegments(ctx context.Context, name string, kinds []eventKind) (all []eventSegment, err error) {
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
	off := func() error {
		used, err := usageOf(guest, amount)
		all = append(all, eventSegment{usage: used})
		return err
	}
	for round := range b.how.events.rounds {
		for i := range kinds {
			kind := kinds[(i+round)%len(kinds)]
			if err := off(); err != nil {
				return nil, err
			}
			s, err := b.recorded(ctx, guest, kind, amount)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", kind.name, err)
			}
			all = append(all, s)
		}
	}
	return all, off()
}

// recorded runs a segment while events are recorded.
func (b bench) recorded(ctx context.Context, guest worker, kind eventKind, amount int) (eventSegment, error) {
	s := eventSegment{kind: kind.name}
	run, err := b.agent.Start(ctx, profiler.Options{PID: guest.PID(), Extra: kind.flags})
	if err != nil {
		return s, err
	}
	err = run.WaitAttached()
	if err == nil {
		var own agentCost
		own, err = during(run, func() error {
			var err error
			s.usage, err = usageOf(guest, amount)
			return err
		})
		s.agent = own.cpu
	}
	recording, stopped := run.Stop() // also one whose guest has failed
	if err := errors.Join(err, stopped); err != nil {
		return s, err
	}
	s.account, err = readEventAccount(recording.Profile)
	return s, err
}
