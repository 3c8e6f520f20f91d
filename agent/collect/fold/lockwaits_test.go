package fold

import (
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// TestLockWaits has a thread wait from 4 s to 25 s, through windows that end at 10, 20 and 30 s.
// They add up to one wait.
func TestLockWaits(t *testing.T) {
	s := NewState(StateOptions{})
	p := NewProcess(proc.Identity{PID: 1}, true)
	event := func(until time.Duration, wait LockWait) *Event {
		wait.Since, wait.Until = 4*time.Second, until
		return &Event{Kind: profile.Locks, TID: 1, Sums: EventSums{Events: 1,
			Values: [profile.MaxEventValues]float64{1, 1, float64(until - wait.Since)}}, Lock: &wait}
	}
	for i, tt := range []struct {
		until   time.Duration
		waiting bool
		want    [profile.MaxEventValues]float64
	}{
		{10 * time.Second, true, [profile.MaxEventValues]float64{0, 1, 6e9}},
		{20 * time.Second, true, [profile.MaxEventValues]float64{0, 0, 10e9}},
		{25 * time.Second, false, [profile.MaxEventValues]float64{1, 0, 5e9}},
	} {
		w := NewWindow(nil)
		w.Began = time.Duration(i) * 10 * time.Second
		w.AddLockWait(s, p, 1, 0, event(tt.until, LockWait{Counted: i > 0, Waiting: tt.waiting}))
		for _, sums := range w.EventSet(p)[profile.Locks].Rows {
			if sums.Values != tt.want {
				t.Errorf("window %d: %v, want %v", i, sums.Values, tt.want)
			}
		}
		if all, recorded, unplaced := w.EventSet(p)[profile.Locks].LockTimes(&CoveredParts{}); all != tt.want[2] ||
			recorded != tt.want[2] || unplaced != tt.want[2] {
			t.Errorf("window %d: %v ns of waits, %v recorded, %v without a stack; want %v", i, all, recorded, unplaced,
				tt.want[2])
		}
	}
}
