package events

import (
	"os"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/budget"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// Counts from before a window began are not in its account.
func TestEventsSince(t *testing.T) {
	snap := func(scale uint64) (kernel *bpf.Counts, s received) {
		kernel = &bpf.Counts{}
		for counter, n := range map[bpf.Counter]uint64{
			bpf.ObservationsAttempted: 103, bpf.ObservationsDelivered: 80, bpf.ObservationsDroppedRingFull: 13,
			bpf.ObservationsDroppedBusy:      7,
			bpf.ObservationsDroppedTableFull: 3, bpf.ProbeHits: 1000, bpf.NsProbes: 5000, bpf.HitsUnattached: 21,
			bpf.NsWaitsDrawn: 900, bpf.NsWaitsLost: 90,
		} {
			kernel[counter] = scale * n
		}
		s = received{received: scale * 80, folded: scale * 70,
			discarded: map[string]uint64{profile.Malformed: scale * 4, profile.NoWindow: scale * 6}}
		return kernel, s
	}
	kernelBefore, before := snap(5)
	kernelAfter, after := snap(7)
	got := eventCountsSince(kernelBefore, kernelAfter, before, after, 500*time.Nanosecond)
	if got.Attempted != 206 || got.Delivered != 160 || got.Folded != 140 || got.Hits != 2000 || got.Cost != 2*5000+
		2000*500 || got.Unattached != 42 {
		t.Errorf("%+v", got)
	}
	if got.WaitTime != 1800 || got.WaitTimeLost != 180 {
		t.Errorf("%v of waits, %v lost", got.WaitTime, got.WaitTimeLost)
	}
	if got.Dropped["ring_full"] != 26 || got.Dropped["busy"] != 14 || got.Dropped["table_full"] != 6 {
		t.Errorf("dropped %v", got.Dropped)
	}
	if got.Attempted != got.Delivered+profile.Sum(got.Dropped) || got.Delivered != got.Folded+
		profile.Sum(got.Discarded) {
		t.Errorf("the identities do not hold: %+v", got)
	}
	_, s := snap(1)
	taken := s.clone()
	s.discarded[profile.Malformed]++
	if taken.discarded[profile.Malformed] != 4 {
		t.Error("a snapshot changes with what it was taken of")
	}
}

func TestGuestTimes(t *testing.T) {
	e, _ := watchingSource()
	p := fold.NewProcess(proc.Identity{PID: os.Getpid()}, true)
	e.state().Table[os.Getpid()] = p
	if times := e.guestTimes(); len(times) != 0 {
		t.Errorf("a process that is not attached has used %v", times)
	}
	p.Attachment.Store(3)
	before := e.guestTimes()
	for start := time.Now(); time.Since(start) < 50*time.Millisecond; {
	}
	after := e.guestTimes()
	if used := before.Until(after); len(after) != 1 || used <= 0 || used > 10*time.Second {
		t.Errorf("this process has used %v, %v since", after, used)
	}
	if used := (budget.Times{}).Until(after); used != 0 {
		t.Errorf("a guest that is new has used %v", used)
	}
	if used := after.Until(before); used != 0 {
		t.Errorf("time went back by %v", used)
	}
	p.Exited.Store(true)
	if times := e.guestTimes(); len(times) != 0 {
		t.Errorf("a process that is gone has used %v", times)
	}
}
