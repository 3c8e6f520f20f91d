package events

import (
	"maps"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/target"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// locksOf returns the sums of a window's waits for locks.
func locksOf(w *fold.Window, p *fold.Process) (sum fold.EventSums) {
	for row := range maps.Values(w.EventSet(p).Of(profile.Locks).Rows) {
		sum.Add(row)
	}
	return sum
}

// What a survey found stands for the time since the one before, in windows that ended between them for the part that is theirs.
func TestSurvey(t *testing.T) {
	s := fold.NewState(fold.StateOptions{Submit: func(*target.Process) {}})
	p := s.Process(&bpf.Header{Pid: 7, Start: 1})
	const begin, end = 10 * time.Second, 15 * time.Second
	found := []waitingVirtual{
		{VirtualDoing: vmruntime.VirtualDoing{State: vmruntime.VirtualParked, Class: "Sync"}, weight: 3},
		{VirtualDoing: vmruntime.VirtualDoing{State: vmruntime.VirtualBlocked, Class: "Gate"}, weight: 5},
	}
	all := surveys{p.Process: {until: [virtualKinds]time.Duration{virtualParks: begin}, last: found}}
	first, second := fold.NewWindow(nil), fold.NewWindow(nil)
	first.Began, second.Began = 5*time.Second, end
	all.finish(s, first, end)
	if got, want := locksOf(first, p).Values[2], 3*float64(end-begin); got != want {
		t.Errorf("the first window has %v ns, want %v: monitors are not surveyed", got, want)
	}
	const next = 17 * time.Second
	all.finish(s, second, next)
	got := locksOf(second, p)
	if want := 3 * float64(next-end); got.Values[2] != want || got.Known[2] != want || got.Values[0] != 0 || got.Values[1] != 0 {
		t.Errorf("the second window has %+v, want %v ns of waits that are counted elsewhere", got, want)
	}
	if nobody := (*survey)(nil); nobody.any() || nobody.failed() || (&survey{why: "no list"}).of(virtualParks) {
		t.Error("lengths come from no survey")
	}
	var names int
	all.needNames(p, func(target.RawFrame) { names++ })
	if names != 0 {
		t.Errorf("%d frames of no stack", names)
	}
}

// A wait that lasts still counts up to the end of each window, and no longer once surveys say how long waits are.
func TestVirtualStill(t *testing.T) {
	s := fold.NewState(fold.StateOptions{Submit: func(*target.Process) {}})
	begin := virtualRecord(bpf.ObservedFreeze, 0, "java.util.concurrent.Semaphore$FairSync", 5, uint64(10*time.Second))
	p := s.Process(begin.Header)
	var v virtuals
	if kept, ok := v.begin(s, p, begin, &fold.Event{TID: 8, Thread: "carrier", Every: 2}, asIs); !kept || !ok {
		t.Fatal(kept, ok)
	}
	always := func(*target.Process, int) bool { return true }
	for i, want := range []float64{2e9, 6e9} {
		w := fold.NewWindow(nil)
		w.Began = []time.Duration{5 * time.Second, 11 * time.Second}[i]
		end := []time.Duration{11 * time.Second, 14 * time.Second}[i]
		v.finish(s, w, end, func(*target.Process, int) bool { return false })
		v.finish(s, w, end, always)
		if got := locksOf(w, p); got.Values[2] != want || got.Values[0] != 0 || (got.Values[1] != 0) != (i == 0) {
			t.Errorf("window %d has %v, want %v ns", i, got.Values, want)
		}
	}
	if w, ok := v.end(p, virtualRecord(bpf.ObservedThaw, 0, "", 5, uint64(10*time.Second), uint64(time.Second)), &fold.Event{Every: 2}); !ok || w == nil || w.event.Lock == nil || !w.event.Lock.Counted || w.event.Thread != virtualName {
		t.Errorf("the wait ends with %+v", w)
	}
	v.begin(s, p, begin, &fold.Event{Every: 1}, asIs)
	v.settle(s, p.Process, virtualBlocks, time.Minute)
	if len(v.waiting) != 1 {
		t.Error("a wait of another kind was settled")
	}
	if v.settle(s, p.Process, virtualParks, time.Minute); len(v.waiting) != 0 || v.frames != 0 {
		t.Errorf("%d waits are left", len(v.waiting))
	}
}
