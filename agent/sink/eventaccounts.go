package sink

import (
	"fmt"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"
)

// EventSummary accounts for the events of a window in one line, all kinds together: how many there are, how many were
// lost and to what, and what they cost.
func EventSummary(c profile.EventCounts) string {
	return fmt.Sprintf("events: %d, %s", c.Folded, eventLosses(c))
}

func eventLosses(c profile.EventCounts) string {
	text := causes("lost", addEach(addEach(nil, c.Dropped), c.Discarded))
	if c.Hits > 0 {
		text += fmt.Sprintf(", %d hits of probes took %v of CPU time", c.Hits, c.Cost.Round(time.Microsecond))
	}
	return text
}

// eventAccounts account for the events of one kind in a profile, over all processes and windows.
type eventAccounts struct {
	kind   profile.EventKind
	events uint64              // of the kind
	mixed  bool                // the counts are of other kinds, too
	counts profile.EventCounts // of all kinds
	basis  processNotes
	parts  coverages
}

func (a *eventAccounts) add(p *profile.Profile) {
	addEventCounts(&a.counts, p.EventCounts)
	a.mixed = a.mixed || len(Kinds(p)) > 1
	for _, proc := range p.Processes {
		for _, e := range proc.Events {
			if e.Kind == a.kind {
				a.events += countEvents(e)
				a.basis.add(proc, e.Basis)
				a.parts.kind = a.kind
				a.parts.add(proc, e)
			}
		}
	}
}

// String is the first comment of a profile: the account of the kind, and of all kinds where that is all that is known.
func (a *eventAccounts) String() string {
	if a.mixed {
		return fmt.Sprintf("events: %d %v; of all kinds together %d, %s", a.events, a.kind, a.counts.Folded, eventLosses(a.counts))
	}
	return fmt.Sprintf("events: %d %v, %s", a.events, a.kind, eventLosses(a.counts))
}

// addEventCounts adds the accounts of one window to those of the windows before.
func addEventCounts(sum *profile.EventCounts, c profile.EventCounts) {
	sum.Attempted += c.Attempted
	sum.Delivered += c.Delivered
	sum.Folded += c.Folded
	sum.Hits += c.Hits
	sum.Unattached += c.Unattached
	sum.Cost += c.Cost
	sum.Dropped = addEach(sum.Dropped, c.Dropped)
	sum.Discarded = addEach(sum.Discarded, c.Discarded)
}
