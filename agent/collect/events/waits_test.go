package events

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold/foldtest"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/cause"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

const second = time.Second

// waitOf is the record of a wait of thread 8.
func waitOf(since, until time.Duration, sp uint64) *bpf.Observation {
	o := &bpf.Observation{
		Sample: bpf.Sample{Header: &bpf.Header{Time: uint64(until), Start: 1, Pid: 7, Tid: 8}},
		Seen:   &bpf.ProbeObservation{What: bpf.ObservedWait, Count: 7, Flags: bpf.OffCPUBlocked},
	}
	o.Seen.Values[bpf.WaitSince], o.Seen.Values[bpf.WaitSP] = uint64(since), sp
	return o
}

// awaySince is a thread that has not come back.
func awaySince(tid uint32, since time.Duration, sp uint64) bpf.OffCPUThread {
	return bpf.OffCPUThread{Since: uint64(since), Sp: sp, Start: 1, Pid: 7, Tid: tid, State: uint32(bpf.OffCPUBlocked)}
}

// A thread that waits when a window ends counts up to its end, with the stack of its last wait if
// that was at the same place, and once.
func TestFinishWaits(t *testing.T) {
	for _, tt := range []struct {
		name           string
		last           *bpf.Observation
		away           bpf.OffCPUThread
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
			s, window := fold.NewState(fold.StateOptions{Submit: func(*guest.Process) {}}), fold.NewWindow(nil)
			window.Began, window.Ended = 10*second, 20*second
			s.Open(window)
			p := s.Process(tt.last.Header)
			event := fold.Event{TID: 8, Stack: []guest.RawFrame{{Kind: guest.RawKernel, Frame: 1}}}
			if wanted, ok := w.handle(s, p, tt.last, &event); !wanted || !ok {
				t.Fatal(wanted, ok)
			}
			w.finish(s, window, []bpf.OffCPUThread{tt.away}, window.Ended)
			var known, unknown time.Duration
			for key, sums := range window.Events[p].ByKind(profile.OffCPU).Rows {
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

// A thread that was stopped while it waited goes on to wait: with the stack of that, not of the
// stop, although its registers are the same.
func TestFinishWaitsAfterStop(t *testing.T) {
	w := &waits{last: map[uint32]*lastWait{}}
	s, window := fold.NewState(fold.StateOptions{Submit: func(*guest.Process) {}}), fold.NewWindow(nil)
	window.Began, window.Ended = 10*second, 20*second
	s.Open(window)
	waited, stopped := waitOf(11*second, 12*second, 5), waitOf(12*second, 13*second, 5)
	stopped.Seen.Flags = bpf.OffCPUStopped
	p := s.Process(waited.Header)
	wait, stop := guest.RawFrame{Kind: guest.RawKernel, Frame: 1}, guest.RawFrame{Kind: guest.RawKernel, Frame: 2}
	w.handle(s, p, waited, &fold.Event{TID: 8, Stack: []guest.RawFrame{wait}})
	w.handle(s, p, stopped, &fold.Event{TID: 8, Stack: []guest.RawFrame{stop}})
	w.finish(s, window, []bpf.OffCPUThread{awaySince(8, 13*second, 5)}, window.Ended)
	r := window.Events[p].ByKind(profile.OffCPU)
	got := map[guest.RawFrame]time.Duration{}
	for key, sums := range r.Rows {
		got[r.Tree.Node(key.Context).Key] += time.Duration(sums.Values[1])
	}
	if got[wait] != 8*second || got[stop] != second {
		t.Errorf("%v", got)
	}
}

// A wait counts with its parts as they were drawn: until the thread was woken, by whom, and the
// rest.
func TestHandleWokenWait(t *testing.T) {
	const mean = 100 * time.Millisecond
	for _, tt := range []struct {
		name            string
		woken, least    time.Duration // times since the wait began, which takes 40 ms
		blocked, queued time.Duration
		known           bool
	}{
		{"drawn as a whole", 20 * time.Millisecond, 10 * time.Millisecond, mean, mean / 2, true},
		{"drawn for its length at the return", 20 * time.Millisecond, 30 * time.Millisecond, 0, mean / 2, true},
		{"the record of the waker was lost", 20 * time.Millisecond, 10 * time.Millisecond, mean, mean / 2, false},
		{"nobody was seen to wake it", 0, 0, mean, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := &waits{last: map[uint32]*lastWait{}, wakers: true,
				code: kernelCode{function: func(uint64) string { return "try_to_wake_up" }}}
			e := &Source{waits: w}
			s, window := fold.NewState(fold.StateOptions{Submit: func(*guest.Process) {}}), fold.NewWindow(nil)
			window.Began, window.Ended = 10*second, 20*second
			s.Open(window)
			const since = 11 * second
			o := waitOf(since, since+40*time.Millisecond, 5)
			o.Seen.Values[bpf.WaitMean] = uint64(mean)
			if tt.woken != 0 {
				o.Seen.Values[bpf.WaitWoken], o.Seen.Values[bpf.WaitLeast] = uint64(since+tt.woken), uint64(tt.least)
			}
			if tt.known {
				by := waitOf(since, since+tt.woken, 0)
				by.Seen = &bpf.ProbeObservation{What: bpf.ObservedWaker, Count: 2, Flags: bpf.WakerChosen}
				by.Seen.Values[bpf.WakerTID], by.Seen.Values[bpf.WakerSince] = 8, uint64(since)
				by.Kernel = []uint64{1, 2}
				if !e.handleWaker(s, by) || len(w.pending.of) != 1 || w.pending.frames != 0 {
					t.Fatalf("%+v", w.pending)
				}
			}
			p := s.Process(o.Header)
			if wanted, ok := w.handle(s, p, o, &fold.Event{TID: 8}); !wanted || !ok {
				t.Fatal(wanted, ok)
			}
			sums := map[string]time.Duration{}
			for key, row := range window.Events[p].ByKind(profile.OffCPU).Rows {
				sums[key.Place] += time.Duration(row.Values[1])
			}
			if sums[cause.Blocked] != tt.blocked || sums[cause.Runnable] != tt.queued {
				t.Errorf("%v, want %v blocked and %v queued", sums, tt.blocked, tt.queued)
			}
			if len(w.pending.of) != 0 || w.pending.frames != 0 {
				t.Errorf("%+v is kept", w.pending)
			}
		})
	}
}

// Wakers wait for the waits that they ended, within bounds.
func TestPendingWakers(t *testing.T) {
	var w pendingWakers
	by := func(frames int) fold.Waker { return fold.Waker{Stack: make([]guest.RawFrame, frames)} }
	w.add(1, 10, by(3))
	w.add(1, 20, by(4)) // the first one's record was lost
	w.add(2, 30, by(maxPendingFrames-3))
	if w.take(2, 30) != nil {
		t.Error("more frames are kept than allowed")
	}
	if got := w.take(1, 10); got != nil || len(w.of) != 0 || w.frames != 0 {
		t.Errorf("another wait's waker: %+v", got)
	}
	w.add(1, 10, by(3))
	w.add(2, 10, by(3))
	w.add(3, 100, by(3))
	w.see(1)
	w.forget(50)
	if w.of[1] == nil || w.of[2] != nil || w.of[3] == nil || w.frames != 6 {
		t.Errorf("%+v", w)
	}
	if got := w.take(1, 10); got == nil || len(got.Stack) != 3 {
		t.Errorf("%+v", got)
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
	o.Seen.Values[bpf.WaitWoken], o.Seen.Values[bpf.WaitLeast] = 1<<63, 1<<63
	if _, ok := w.handle(s, s.Process(o.Header), o, &fold.Event{}); !ok {
		t.Error("woken later than now")
	}
	if o.Seen.Count = 2; (&Source{waits: w}).handleWaker(s, o) {
		t.Error("a waker was kept though none are recorded")
	}
}

// The mean interval follows the cost of records, within bounds.
func TestWaitRate(t *testing.T) {
	const allowed = 0.01
	var r waitRate
	if mean := r.begin(0, allowed); mean != firstMean {
		t.Fatalf("begins with %v", mean)
	}
	if pause := r.pause(); pause != time.Duration(float64(usualRecord)/allowed/excess) {
		t.Errorf("a pause of %v before a record was measured", pause)
	}
	count := func(c *waitCounts, records uint64, each time.Duration) {
		c.records += records
		c.observations += records
		c.spent += time.Duration(records) * each
	}
	var c waitCounts
	count(&c, 10_000, 3*time.Microsecond) // 3 % of a CPU
	if mean, changed := r.next(second, c, allowed, false); !changed || mean != 30*time.Millisecond {
		t.Errorf("%v, %t", mean, changed)
	}
	count(&c, 3_400, 3*time.Microsecond)
	if mean, changed := r.next(2*second, c, allowed, false); changed || mean != 30*time.Millisecond {
		t.Errorf("%v, %t, though the cost is about right", mean, changed)
	}
	if _, changed := r.next(3*second, c, allowed, false); changed {
		t.Error("changed without a record")
	}
	if pause := r.pause(); pause != time.Duration(float64(3*time.Microsecond)/allowed/excess) {
		t.Errorf("a pause of %v between records of 3 us", pause)
	}
	for i := range time.Duration(20) {
		count(&c, 1, time.Microsecond)
		r.next((4+i)*second, c, allowed, false)
	}
	if r.mean != leastMean {
		t.Errorf("%v with hardly a record", r.mean)
	}
	for i := range time.Duration(20) {
		count(&c, 1_000_000, time.Microsecond)
		r.next((30+i)*second, c, allowed, false)
	}
	if r.mean != mostMean {
		t.Errorf("%v with many records", r.mean)
	}
	if got, want := r.note(0, second/2), "every wait of 10ms and longer is recorded, and a sample of the shorter "+
		"ones, drawn in proportion to their length"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// Where the kernel side has raised the interval, what was counted meanwhile says nothing of the new
// one, and notes have it.
func TestWaitRateRaised(t *testing.T) {
	const allowed = 0.01
	var r waitRate
	r.begin(0, allowed)
	if r.raised(firstMean, second) || r.raised(0, second) {
		t.Error("the interval is the one that was set, or recording has ended")
	}
	if !r.raised(8*firstMean, second) {
		t.Error("the interval is higher")
	}
	c := waitCounts{records: 50_000, observations: 50_000, spent: second / 10}
	if mean, changed := r.next(second, c, allowed, true); changed || mean != 8*firstMean {
		t.Errorf("%v, %t", mean, changed)
	}
	c.records, c.observations, c.spent = 70_000, 70_000, second/10+second/25
	if mean, changed := r.next(2*second, c, allowed, false); !changed || mean != 32*firstMean {
		t.Errorf("%v, %t, though records take four times what they may", mean, changed)
	}
	if note := r.note(0, second+1); !strings.HasPrefix(note, "every wait of 80ms and longer") {
		t.Errorf("%q", note)
	}
}

// What following takes is not left for records, up to a share.
func TestWaitRateFollowing(t *testing.T) {
	const allowed = 0.01
	for _, tt := range []struct {
		name    string
		follows float64 // CPUs
		left    float64
	}{{"little", allowed / 10, 0.9 * allowed}, {"nearly all", 0.95 * allowed, leastRecordShare * allowed},
		{"more", 10 * allowed, leastRecordShare * allowed}} {
		t.Run(tt.name, func(t *testing.T) {
			var r waitRate
			r.begin(0, allowed)
			c := waitCounts{waits: uint64(tt.follows * float64(second/switchCost)), records: 1, observations: 1,
				spent: time.Microsecond}
			r.next(second, c, allowed, false)
			if math.Abs(r.records-tt.left) > allowed/100 {
				t.Errorf("records may take %v, want %v", r.records, tt.left)
			}
		})
	}
}

// A wait that ends while stacks are read counts once: by its record, which comes before the stack
// that was read of it.
func TestWaitEndsWhileStacksAreRead(t *testing.T) {
	const since, until = 11 * second, 14 * second
	for _, recorded := range []bool{true, false} {
		e, window := watchingSource()
		e.waits = &waits{last: map[uint32]*lastWait{}, vain: map[uint32]uint64{}}
		window.Began, window.Ended = 10*second, 20*second
		s := e.state()
		away := []bpf.OffCPUThread{awaySince(8, since, 5)}
		asked := e.waits.unknown(s, away, leastAsked)
		if len(asked) != 1 {
			t.Fatalf("%d stacks are asked for", len(asked))
		}
		want := 9 * second
		if recorded {
			want = until - since
			o := waitOf(since, until, 5)
			if wanted, ok := e.waits.handle(s, s.Process(o.Header), o, &fold.Event{TID: 8}); !wanted || !ok {
				t.Fatal(wanted, ok)
			}
		}
		seen := bpf.ProbeObservation{What: bpf.ObservedWait, Count: 7, Every: 1, Flags: bpf.OffCPUBlocked}
		seen.Values[bpf.WaitSince], seen.Values[bpf.WaitSP] = uint64(since), 5
		e.learn(s, asked, [][]byte{foldtest.Observation(record{Identity: identity{PID: 7, Start: 1}, TID: 8, User: "A"},
			seen, "")})
		e.waits.finish(s, window, away, window.Ended)
		var sum time.Duration
		for _, r := range window.Events {
			for _, sums := range r.ByKind(profile.OffCPU).Rows {
				sum += time.Duration(sums.Values[1])
			}
		}
		if sum != want {
			t.Errorf("the wait counts with %v, want %v; its record has come: %t", sum, want, recorded)
		}
	}
}
