package fold

import (
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/cause"
	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/target"
)

// To each window the part of a wait is added that is in it: the parts of consecutive windows add up to the wait.
func TestAddWait(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		name string
		wait Wait
		want map[string][2]float64 // waits and seconds, by state
	}{
		{"within", Wait{Since: 12 * s, Until: 15 * s, State: cause.Blocked, Weight: 1}, map[string][2]float64{cause.Blocked: {1, 3}}},
		{"drawn", Wait{Since: 12 * s, Until: 15 * s, State: cause.Blocked, Weight: 2.5}, map[string][2]float64{cause.Blocked: {2.5, 7.5}}},
		{"then waits for a CPU", Wait{Since: 12 * s, Until: 15 * s, Delay: s, State: cause.Uninterruptible, Weight: 1},
			map[string][2]float64{cause.Uninterruptible: {1, 2}, cause.Runnable: {1, 1}}},
		{"preempted", Wait{Since: 12 * s, Until: 15 * s, Delay: s, State: cause.Runnable, Weight: 1}, map[string][2]float64{cause.Runnable: {1, 3}}},
		{"throttled", Wait{Since: 12 * s, Until: 15 * s, Delay: 3 * s, State: cause.Throttled, Weight: 1}, map[string][2]float64{cause.Throttled: {1, 3}}},
		{"began before", Wait{Since: 5 * s, Until: 15 * s, State: cause.Blocked, Weight: 1}, map[string][2]float64{cause.Blocked: {1, 5}}},
		{"ready before", Wait{Since: 5 * s, Until: 15 * s, Delay: 6 * s, State: cause.Blocked, Weight: 1}, map[string][2]float64{cause.Runnable: {1, 5}}},
		{"ended before", Wait{Since: 5 * s, Until: 9 * s, State: cause.Blocked, Weight: 1}, nil},
		{"longer delay than wait", Wait{Since: 12 * s, Until: 15 * s, Delay: 9 * s, State: cause.Blocked, Weight: 1}, map[string][2]float64{cause.Runnable: {1, 3}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			state, p := NewState(StateOptions{}), NewProcess(proc.Identity{PID: 7}, true)
			w := NewWindow(nil)
			w.Began = 10 * s
			state.Open(w)
			if !state.AddWait(p, 7, 0, &Event{TID: 8}, &tt.wait) {
				t.Error("no window wanted it")
			}
			got := map[string][2]float64{}
			if set := w.Events[p]; set != nil {
				for key, sums := range set.Of(profile.OffCPU).Rows {
					got[key.Place] = [2]float64{sums.Values[0], sums.Values[1] / float64(s)}
				}
			}
			if len(got) != len(tt.want) {
				t.Errorf("%v, want %v", got, tt.want)
			}
			for state, want := range tt.want {
				if got[state] != want {
					t.Errorf("%s: %v, want %v", state, got[state], want)
				}
			}
		})
	}
}

// Off-CPU time is scaled by the time that was lost, not by the number of records.
func TestLostWaits(t *testing.T) {
	state, p := NewState(StateOptions{}), NewProcess(proc.Identity{PID: 7}, true)
	w := NewWindow(nil)
	w.Began = 1
	state.Open(w)
	state.AddWait(p, 7, 0, &Event{TID: 8}, &Wait{Since: 1, Until: 1 + 9*time.Second, State: cause.Blocked, Weight: 1})
	counts := profile.EventCounts{
		Attempted: 100, Dropped: map[string]uint64{"ring_full": 99}, WaitTime: 10 * time.Second, WaitTimeLost: time.Second,
	}
	covered := Covered(nil, nil, 0, &counts)
	e := namedBy(target.NewProcess(p.ID), w.Events[p], &covered)[0]
	if got := time.Duration(e.Rows[0].Values[1]).Round(time.Microsecond); got != 10*time.Second {
		t.Errorf("%v in all, want 10 s", got)
	}
	if within := e.Coverage.Within(); within != float64(time.Second) {
		t.Errorf("within %v, want 1 s", time.Duration(within))
	}
}
