package events

import (
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// A thread's time on the CPU is that in the window, and its wall time how long it existed in it.
func TestAddTimes(t *testing.T) {
	booted := proc.SinceBoot() - proc.Monotonic()
	thread := func(born, on, since time.Duration) bpf.OffCPUThread {
		return bpf.OffCPUThread{Born: uint64(born + booted), On: uint64(on), Since: uint64(since), Start: 1, Pid: 7, Tid: 8}
	}
	for _, tt := range []struct {
		name          string
		first, second bpf.OffCPUThread // when windows from 10 s to 20 s and from there to 30 s end
		began         time.Duration
		before        map[uint32]fold.ThreadOn
		want          []time.Duration // on, wall, of the second; none if they are not known
	}{
		{"waits", thread(second, 2*second, 14*second), thread(second, 2*second, 14*second), 20 * second, nil,
			[]time.Duration{0, 10 * second}},
		{"ran", thread(second, 2*second, 14*second), thread(second, 5*second, 24*second), 20 * second, nil,
			[]time.Duration{3 * second, 10 * second}},
		{"runs", thread(second, 6*second, 0), thread(second, 16*second, 0), 20 * second, nil,
			[]time.Duration{10 * second, 10 * second}},
		{"is new", thread(second, 0, second), thread(22*second, second, 23*second), 20 * second, nil,
			[]time.Duration{second, 8 * second}},
		{"a window of its own", thread(second, 0, second), thread(second, 0, second), 21 * second, nil, nil},
		{"a window of its own, at whose begin somebody looked", thread(second, 2*second, second),
			thread(second, 5*second, second), 21 * second,
			onOf([]bpf.OffCPUThread{thread(second, 3*second, second)}), []time.Duration{2 * second, 9 * second}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := &waits{begun: 10 * second}
			s := fold.NewState(fold.StateOptions{Submit: func(*guest.Process) {}})
			window := fold.NewWindow(nil)
			window.Began, window.Ended, window.Continued = 9*second, 20*second, true
			w.addTimes(s, window, []bpf.OffCPUThread{tt.first}, 20*second)
			window = fold.NewWindow(nil)
			window.Began, window.Ended, window.OnBefore = tt.began, 30*second, tt.before
			w.addTimes(s, window, []bpf.OffCPUThread{tt.second}, 30*second)
			var got []profile.ThreadTime
			for _, set := range window.Events {
				got = append(got, set.ByKind(profile.OffCPU).ThreadTimes()...)
			}
			if len(got) != len(tt.want)/2 {
				t.Fatalf("%+v, want %v", got, tt.want)
			}
			const precise = time.Millisecond // precision of the distance between the clocks
			if len(got) > 0 && (got[0].On != tt.want[0] || (got[0].Wall-tt.want[1]).Abs() > precise) {
				t.Errorf("%+v, want %v", got[0], tt.want)
			}
		})
	}
}
