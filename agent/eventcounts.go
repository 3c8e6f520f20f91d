package agent

import "time"

// EventCounts accounts for the events of a window, of all kinds together. Events.Rows tell how many of a kind there are.
// Two identities hold once the stream is drained:
//
//	Attempted == Delivered + sum(Dropped)
//	Delivered == Folded + sum(Discarded)
//
// Hits are at least as many as Attempted: of most kinds only every Nth execution of a probe is sampled, and objects that are
// counted without telling of each (EventOptions.ExactAllocations) are hits only.
type EventCounts struct {
	Attempted uint64            // events that the kernel side began to record
	Delivered uint64            // events that user space received
	Dropped   map[string]uint64 // by cause, in the kernel: ring_full, …
	Folded    uint64            // events in Process.Events
	Discarded map[string]uint64 // by cause, in user space: malformed, …
	Hits      uint64            // executions of probes in guests, recorded or not
	// Unattached are hits, of allocations and waits, in processes whose VM was not attached yet: nothing is recorded then.
	Unattached uint64
	Cost       time.Duration // CPU time that the hits took from guests, by the measured cost of one
}

// lost is how many events were lost in the kernel or could not be read.
func (c *EventCounts) lost() uint64 {
	lost := c.Discarded[discardMalformed]
	for _, n := range c.Dropped {
		lost += n
	}
	return lost
}

// lostShare is what share of the events that is, 0 to 0.999.
func (c *EventCounts) lostShare() float64 {
	return min(float64(c.lost())/float64(max(c.Attempted, 1)), 0.999)
}
