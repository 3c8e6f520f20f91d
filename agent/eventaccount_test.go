package agent

import (
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// What happened before a window began is not in its account.
func TestEventsSince(t *testing.T) {
	snap := func(scale uint64) (s snapshot) {
		for counter, n := range map[bpf.Counter]uint64{
			bpf.ObservationsAttempted: 103, bpf.ObservationsDelivered: 80, bpf.ObservationsDroppedRingFull: 13, bpf.ObservationsDroppedBusy: 7,
			bpf.ObservationsDroppedTableFull: 3, bpf.ProbeHits: 1000, bpf.NsProbes: 5000, bpf.HitsUnattached: 21,
		} {
			s.kernel[counter] = scale * n
		}
		s.observed = observedCounts{received: scale * 80, folded: scale * 70, discarded: map[string]uint64{discardMalformed: scale * 4, discardNoWindow: scale * 6}}
		return s
	}
	got := snap(7).eventsSince(snap(5), 500*time.Nanosecond)
	if got.Attempted != 206 || got.Delivered != 160 || got.Folded != 140 || got.Hits != 2000 || got.Cost != 2*5000+2000*500 || got.Unattached != 42 {
		t.Errorf("%+v", got)
	}
	if got.Dropped["ring_full"] != 26 || got.Dropped["busy"] != 14 || got.Dropped["table_full"] != 6 {
		t.Errorf("dropped %v", got.Dropped)
	}
	if got.Attempted != got.Delivered+sum(got.Dropped) || got.Delivered != got.Folded+sum(got.Discarded) {
		t.Errorf("the identities do not hold: %+v", got)
	}
	s := snap(1)
	before := s.observed.clone()
	s.observed.discarded[discardMalformed]++
	if before.discarded[discardMalformed] != 4 {
		t.Error("a snapshot changes with what it was taken of")
	}
}
