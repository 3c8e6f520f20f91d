package events

import (
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/cause"
	"github.com/vmprof-agent/vmprof-agent/agent/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/target"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

const second = time.Second

// waitOf is the record of a wait of thread 8.
func waitOf(since, until time.Duration, sp uint64) *bpf.Observation {
	o := &bpf.Observation{
		Sample: bpf.Sample{Header: &bpf.Header{Time: uint64(until), Start: 1, Pid: 7, Tid: 8}},
		Seen:   &bpf.ProbeObservation{What: bpf.ObservedWait, Count: 5, Flags: bpf.AwayBlocked},
	}
	o.Seen.Values[bpf.WaitSince], o.Seen.Values[bpf.WaitSP] = uint64(since), sp
	return o
}

// awaySince is a thread that has not come back.
func awaySince(tid uint32, since time.Duration, sp uint64) awayThread {
	return awayThread{tid, bpf.Away{Since: uint64(since), Sp: sp, Start: 1, Pid: 7, State: uint32(bpf.AwayBlocked)}}
}

// A thread that waits when a window ends counts up to its end, with the stack of its last wait if that was at the same place, and once.
func TestFinishWaits(t *testing.T) {
	for _, tt := range []struct {
		name           string
		last           *bpf.Observation
		away           awayThread
		known, unknown time.Duration
	}{
		{"at the same place", waitOf(11*second, 12*second, 5), awaySince(8, 13*second, 5), 1*second + 7*second, 0},
		{"elsewhere", waitOf(11*second, 12*second, 5), awaySince(8, 13*second, 6), 1 * second, 7 * second},
		{"never seen", waitOf(11*second, 12*second, 5), awaySince(9, 5*second, 5), 1 * second, 10 * second},
		{"has come back meanwhile", waitOf(11*second, 15*second, 5), awaySince(8, 11*second, 5), 4 * second, 0},
		{"runs", waitOf(11*second, 12*second, 5), awaySince(8, 0, 5), 1 * second, 0},
		{"left after the end", waitOf(11*second, 12*second, 5), awaySince(8, 21*second, 5), 1 * second, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := &waits{last: map[uint32]*lastWait{}}
			s, window := fold.NewState(fold.StateOptions{Submit: func(*target.Process) {}}), fold.NewWindow(nil)
			window.Began, window.Ended = 10*second, 20*second
			s.Open(window)
			p := s.Process(tt.last.Header)
			event := fold.Event{TID: 8, Stack: []target.RawFrame{{Kind: target.RawKernel, Frame: 1}}}
			if wanted, ok := w.handle(s, p, tt.last, &event); !wanted || !ok {
				t.Fatal(wanted, ok)
			}
			w.finish(s, window, []awayThread{tt.away}, window.Ended)
			var known, unknown time.Duration
			for key, sums := range window.Events[p].Of(profile.OffCPU).Rows {
				if key.Place != cause.Blocked {
					t.Errorf("state %q", key.Place)
				}
				if key.Context == 0 {
					unknown += time.Duration(sums.Values[1])
				} else {
					known += time.Duration(sums.Values[1])
				}
			}
			if known != tt.known || unknown != tt.unknown {
				t.Errorf("%v with a stack, %v without, want %v and %v", known, unknown, tt.known, tt.unknown)
			}
			if w.finish(s, window, nil, window.Ended); len(w.last) != 0 || w.frames != 0 {
				t.Errorf("%d threads and %d frames are kept of threads that are gone", len(w.last), w.frames)
			}
		})
	}
}

// A thread that was stopped while it waited goes on to wait: with the stack of that, not of the stop, although its registers are the same.
func TestFinishWaitsAfterStop(t *testing.T) {
	w := &waits{last: map[uint32]*lastWait{}}
	s, window := fold.NewState(fold.StateOptions{Submit: func(*target.Process) {}}), fold.NewWindow(nil)
	window.Began, window.Ended = 10*second, 20*second
	s.Open(window)
	waited, stopped := waitOf(11*second, 12*second, 5), waitOf(12*second, 13*second, 5)
	stopped.Seen.Flags = bpf.AwayStopped
	p := s.Process(waited.Header)
	wait, stop := target.RawFrame{Kind: target.RawKernel, Frame: 1}, target.RawFrame{Kind: target.RawKernel, Frame: 2}
	w.handle(s, p, waited, &fold.Event{TID: 8, Stack: []target.RawFrame{wait}})
	w.handle(s, p, stopped, &fold.Event{TID: 8, Stack: []target.RawFrame{stop}})
	w.finish(s, window, []awayThread{awaySince(8, 13*second, 5)}, window.Ended)
	r := window.Events[p].Of(profile.OffCPU)
	got := map[target.RawFrame]time.Duration{}
	for key, sums := range r.Rows {
		got[r.Tree.Node(key.Context).Key] += time.Duration(sums.Values[1])
	}
	if got[wait] != 8*second || got[stop] != second {
		t.Errorf("%v", got)
	}
}

// Whatever a record says, nothing fails.
func TestHandleHostileWait(t *testing.T) {
	w := &waits{last: map[uint32]*lastWait{}}
	s := fold.NewState(fold.StateOptions{})
	none := (*waits)(nil)
	o := waitOf(11*second, 12*second, 5)
	if _, ok := none.handle(s, nil, o, &fold.Event{}); ok {
		t.Error("a wait was folded though none are recorded")
	}
	if o = waitOf(13*second, 12*second, 5); true {
		if _, ok := w.handle(s, nil, o, &fold.Event{}); ok {
			t.Error("a wait ended before it began")
		}
	}
	o = waitOf(11*second, 12*second, 5)
	o.Seen.Flags, o.Seen.Values[bpf.WaitDelay], o.Seen.Values[bpf.WaitMean] = 200, 1<<63, 1<<63
	if _, ok := w.handle(s, s.Process(o.Header), o, &fold.Event{}); !ok {
		t.Error("an unknown state, and a long delay")
	}
}

// The mean interval follows the cost of records, within bounds.
func TestWaitRate(t *testing.T) {
	const allowed = 0.01
	var r waitRate
	if mean := r.begin(0); mean != firstMean {
		t.Fatalf("begins with %v", mean)
	}
	count := func(c *waitCounts, records uint64, each time.Duration) {
		c.records += records
		c.observations += records
		c.spent += time.Duration(records) * each
	}
	var c waitCounts
	count(&c, 10_000, 3*time.Microsecond) // 3 % of a CPU
	if mean, changed := r.next(second, c, allowed); !changed || mean != 30*time.Millisecond {
		t.Errorf("%v, %t", mean, changed)
	}
	count(&c, 3_400, 3*time.Microsecond)
	if mean, changed := r.next(2*second, c, allowed); changed || mean != 30*time.Millisecond {
		t.Errorf("%v, %t, though the cost is about right", mean, changed)
	}
	if _, changed := r.next(3*second, c, allowed); changed {
		t.Error("changed without a record")
	}
	for i := range time.Duration(20) {
		count(&c, 1, time.Microsecond)
		r.next((4+i)*second, c, allowed)
	}
	if r.mean != leastMean {
		t.Errorf("%v with hardly a record", r.mean)
	}
	for i := range time.Duration(20) {
		count(&c, 1_000_000, time.Microsecond)
		r.next((30+i)*second, c, allowed)
	}
	if r.mean != mostMean {
		t.Errorf("%v with many records", r.mean)
	}
	if got, want := r.note(0, second/2), "every wait of 10ms and longer is recorded, and a sample of the shorter ones, drawn in proportion to their length"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
