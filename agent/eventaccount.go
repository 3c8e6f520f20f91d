package agent

import (
	"maps"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// observedCounts are what became of observations that were received.
type observedCounts struct {
	received, folded uint64
	discarded        map[string]uint64
}

func (c observedCounts) clone() observedCounts {
	c.discarded = maps.Clone(c.discarded)
	return c
}

// eventsSince is what was counted of events after before, if a hit takes that long. Events in flight at either edge are in
// Attempted and not in Delivered, or the other way round; the identities hold when the agent was stopped and flushed first.
func (s snapshot) eventsSince(before snapshot, trap time.Duration) profile.EventCounts {
	d := func(c bpf.Counter) uint64 { return s.kernel[c] - before.kernel[c] }
	c := profile.EventCounts{
		Attempted: d(bpf.ObservationsAttempted),
		Delivered: s.observed.received - before.observed.received,
		Dropped: map[string]uint64{
			"ring_full":  d(bpf.ObservationsDroppedRingFull),
			"busy":       d(bpf.ObservationsDroppedBusy),
			"table_full": d(bpf.ObservationsDroppedTableFull),
		},
		Folded:     s.observed.folded - before.observed.folded,
		Discarded:  map[string]uint64{},
		Hits:       d(bpf.ProbeHits),
		Unattached: d(bpf.HitsUnattached),
		Cost:       time.Duration(d(bpf.NsProbes)) + time.Duration(d(bpf.ProbeHits))*trap,
	}
	for why, n := range s.observed.discarded {
		c.Discarded[why] = n - before.observed.discarded[why]
	}
	return c
}
