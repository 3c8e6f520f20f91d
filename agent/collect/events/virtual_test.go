package events

import (
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/events/probes"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// virtualRecord is the record of a virtual thread that begins to wait, or goes on.
func virtualRecord(what, flags uint8, class string, values ...uint64) *bpf.Observation {
	o := &bpf.Observation{
		Sample: bpf.Sample{Header: &bpf.Header{Start: 1, Pid: 7, Tid: 8}}, Text: []byte(class),
		Seen: &bpf.ProbeObservation{What: what, Flags: flags, Every: 1},
	}
	o.Seen.Count = uint8(copy(o.Seen.Values[:], values))
	return o
}

func asIs(class []byte) string { return string(class) }

// A wait has the stack and the class with which it began, and the length and the weight with which
// it ended.
func TestVirtualWait(t *testing.T) {
	const sync = "java.util.concurrent.locks.ReentrantLock$NonfairSync"
	for _, tt := range []struct {
		name, class string
		flags       uint8
		end         []uint64 // values
		what        string   // "" if there is no event
	}{
		{"a lock", sync, 0, []uint64{5, 100, 40}, "park"},
		{"a queue", "Queue", 0, []uint64{5, 100, 40}, profile.WaitForWork},
		{"a monitor", "Queue", bpf.SeenContended, []uint64{5, 100, 40}, "block"},
		{"another thread", sync, 0, []uint64{6, 100, 40}, ""},
		{"another wait", sync, 0, []uint64{5, 101, 40}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := fold.NewState(fold.StateOptions{Submit: func(*guest.Process) {}})
			begin, end := virtualRecord(bpf.ObservedFreeze, tt.flags, tt.class, 5, 100),
				virtualRecord(bpf.ObservedThaw, 0, "", tt.end...)
			p := s.Process(begin.Header)
			var v virtuals
			stack := []guest.RawFrame{{Kind: guest.RawKernel, Frame: 1}}
			if kept, ok := v.begin(s, p, begin, &fold.Event{TID: 8, Stack: stack}, false, asIs); !kept || !ok {
				t.Fatal(kept, ok)
			}
			stack[0].Frame = 2 // the next record's
			w, ok := v.end(p, end, &fold.Event{Every: 3})
			if !ok || (w != nil) != (tt.what != "") {
				t.Fatal(w, ok)
			}
			if w == nil {
				return
			}
			e := &w.event
			if e.Kind != profile.Locks || e.Labels.What != tt.what || e.Labels.Class != tt.class ||
				e.Delay != 40*time.Nanosecond || e.Every != 3 || e.Stack[0].Frame != 1 {
				t.Errorf("%+v", e)
			}
			want := fold.EventSums{Events: 1, Values: [profile.MaxEventValues]float64{3, 3, 120}}
			if tt.what == profile.WaitForWork {
				want.Values[0], want.Values[1] = 0, 0
			}
			if e.Sums != want {
				t.Errorf("%+v, want %+v", e.Sums, want)
			}
			if len(v.waiting) != 0 || v.frames != 0 {
				t.Errorf("%d waits and %d frames are kept", len(v.waiting), v.frames)
			}
		})
	}
	var p *fold.Process
	var v virtuals
	if _, ok := v.begin(nil, p, virtualRecord(bpf.ObservedFreeze, 0, "", 5), &fold.Event{}, false, asIs); ok {
		t.Error("a record without a time is not malformed")
	}
	if _, ok := v.end(p, virtualRecord(bpf.ObservedThaw, 0, "", 5, 100), &fold.Event{}); ok {
		t.Error("a record without a length is not malformed")
	}
}

// A wait is kept as long as the kernel side knows it, or its end may be on the way.
func TestVirtualSweep(t *testing.T) {
	s := fold.NewState(fold.StateOptions{Submit: func(*guest.Process) {}})
	begin := virtualRecord(bpf.ObservedFreeze, 0, "", 5, 100)
	p := s.Process(begin.Header)
	p.Attachment.Store(3)
	var v virtuals
	v.begin(s, p, begin, &fold.Event{}, false, asIs)
	known := map[bpf.VirtualThread]bpf.UnmountedWait{{Serial: 3, Id: 5}: {Begin: 100}}
	for _, tt := range []struct {
		known map[bpf.VirtualThread]bpf.UnmountedWait
		left  int
	}{{known, 1}, {nil, 1}, {known, 1}, {nil, 1},
		{map[bpf.VirtualThread]bpf.UnmountedWait{{Serial: 3, Id: 5}: {Begin: 200}}, 0}} {
		if v.sweep(tt.known); len(v.waiting) != tt.left {
			t.Fatalf("%d waits are left, want %d", len(v.waiting), tt.left)
		}
	}
}

// No wait is kept twice, and none without room.
func TestVirtualBounds(t *testing.T) {
	s := fold.NewState(fold.StateOptions{Submit: func(*guest.Process) {}})
	begin := virtualRecord(bpf.ObservedFreeze, 0, "", 5, 100)
	p := s.Process(begin.Header)
	v := virtuals{frames: maxVirtualFrames - 1}
	event := &fold.Event{Stack: []guest.RawFrame{{Kind: guest.RawKernel, Frame: 1}}}
	for range 2 {
		if kept, _ := v.begin(s, p, begin, event, false, asIs); !kept || len(v.waiting) != 1 ||
			v.frames != maxVirtualFrames {
			t.Fatalf("%d waits, %d frames", len(v.waiting), v.frames)
		}
	}
	begin.Seen.Values[0]++
	if kept, ok := v.begin(s, p, begin, event, false, asIs); kept || !ok || len(v.waiting) != 1 {
		t.Errorf("%d waits", len(v.waiting))
	}
}

// What was not seen from its begin to its end was not observed: a wait that has not ended is one of
// the next window, too.
func TestVirtualExtent(t *testing.T) {
	of := func(begun, ended, unknown, still uint64) probes.VirtualCount {
		return probes.VirtualCount{VirtualCount: bpf.VirtualCount{Begun: begun, Ended: ended, Unknown: unknown}, Still: still}
	}
	for _, tt := range []struct {
		before, after   probes.VirtualCount
		there, observed float64
		why             string
	}{
		{of(0, 0, 0, 0), of(0, 0, 0, 0), 0, 0, ""},
		{of(10, 10, 1, 0), of(110, 110, 1, 0), 100, 100, ""},
		{of(10, 10, 1, 0), of(110, 105, 21, 5), 120, 100, virtualUnknown},
		{of(10, 2, 0, 8), of(10, 2, 0, 8), 8, 8, ""},
		{of(10, 2, 0, 8), of(12, 12, 0, 0), 10, 10, ""},
		{of(0, 0, 0, 0), of(100, 30, 0, 10), 100, 40, virtualCut},
		{of(0, 0, 0, 0), of(3, 0, 0, 9), 3, 3, ""}, // the counts are not read at one time
		{of(5, 4, 0, 0), of(4, 4, 0, 0), 0, 0, ""}, // the last one has kept its carrier
	} {
		var x profile.Extent
		measure(&x, tt.after, tt.before)
		why := ""
		if len(x.Missed) > 0 {
			why = x.Missed[0].Why
		}
		if x.There != tt.there || x.Observed != tt.observed || why != tt.why {
			t.Errorf("%+v since %+v: %+v", tt.after, tt.before, x)
		}
	}
}
