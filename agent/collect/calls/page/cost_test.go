package page

import (
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// The calls of a calibration are 650 ns apart; those of a process that does work in between are
// much further apart.
func TestHitCost(t *testing.T) {
	type step struct {
		tid, stride uint32
		burst       uint64
		gap         uint64 // ns since the thread's last
		n           int
	}
	for _, test := range []struct {
		name  string
		steps []step
		want  time.Duration
	}{
		{"nothing", nil, 0},
		{"too little", []step{{1, 1, 1, 650, 8}}, 0},
		{"just enough", []step{{1, 1, 1, 650, 9}}, 650},
		{"a burst", []step{{1, 1, 1, 650, 64}}, 650},
		{"long strides say nothing", []step{{1, 127, 1, 650, 64}}, 0},
		{"nor does the time between bursts", []step{{1, 1, 1, 10e6, 1}, {1, 1, 2, 10e6, 1}, {1, 1, 3, 10e6, 30}}, 10e6},
		{"two threads at once", []step{{1, 1, 1, 650, 20}, {2, 1, 1, 700, 20}, {1, 1, 1, 650, 20}}, 650},
		{"some calls are long", []step{{1, 1, 1, 650, 40}, {1, 1, 1, 5e6, 60}}, 650},
		{"most calls are long: an upper bound", []step{{1, 1, 1, 650, 10}, {1, 1, 1, 2000, 60}}, 2000},
	} {
		t.Run(test.name, func(t *testing.T) {
			var h hitCost
			last := map[uint32]uint64{}
			for _, s := range test.steps {
				for range s.n {
					last[s.tid] += s.gap
					h.observe(&bpf.Call{
						Header: bpf.Header{Tid: s.tid, Time: last[s.tid]}, Attachment: 1, Stride: s.stride,
						Burst: s.burst,
					})
				}
			}
			if got := h.time(); got != test.want {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

// State of ended threads does not accumulate.
func TestHitCostThreads(t *testing.T) {
	var h hitCost
	for tid := range uint32(3 * maxThreads) {
		h.observe(&bpf.Call{Header: bpf.Header{Tid: tid}, Stride: 1})
	}
	if n := len(h.last); n > maxThreads {
		t.Errorf("%d threads are kept", n)
	}
}
