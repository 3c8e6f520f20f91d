package monitors

import (
	"math"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// Acquisitions are divided among their observed contexts.
func TestAddEnters(t *testing.T) {
	const low = 0x7f0000000000
	often, seldom := Place{Address: low + 0x100, Version: 5}, Place{Address: low + 0x200, Version: 5}
	frame := func(p Place) bpf.Frame { return enterFrame(p, low) }
	at := func(p Place, callers ...uint64) (stack []guest.RawFrame) {
		stack = append(stack, guest.RawFrame{Frame: frame(p), Kind: guest.RawExact})
		for _, c := range callers {
			stack = append(stack, guest.RawFrame{Frame: bpf.Frame(c)})
		}
		return stack
	}
	var s fold.EventSet
	see := func(times int, class string, stack []guest.RawFrame) {
		for range times {
			s.Add(&fold.Event{Kind: profile.Locks, TID: 9, Thread: "worker", Stack: stack,
				Labels: profile.EventLabels{Class: class, What: enterWhat}, Sums: fold.EventSums{Events: 1}})
		}
	}
	see(3, "A", at(often, 1))
	see(1, "A", at(often, 2))
	see(2, "B", at(often, 2))
	probe := guest.RawFrame{Frame: frame(often)} // a return address: from a probe in the VM
	s.Add(&fold.Event{Kind: profile.Locks, TID: 9, Stack: []guest.RawFrame{probe},
		Labels: profile.EventLabels{Class: "A", What: enterWhat},
		Sums:   fold.EventSums{Events: 1, Values: [profile.MaxEventValues]float64{1}}})
	r := s.ByKind(profile.Locks)
	lost := addEnters(r, []Acquisition{
		{Place: often, Class: "A", Times: 4000, Hits: 400},
		{Place: often, Class: "B", Times: 500, Hits: 50},
		{Place: often, Class: "C", Times: 60, Hits: 6}, // never walked: where the others were
		{Place: seldom, Class: "A", Times: 7, Hits: 1}, // no context
	}, frame)
	if lost != 7 {
		t.Errorf("%v lost, want 7", lost)
	}
	type cell struct {
		class  string
		caller bpf.Frame
	}
	got, all := map[cell]fold.EventSums{}, 0.
	for key, sums := range r.Rows {
		all += sums.Values[0]
		n := r.Tree.Node(key.Context)
		if n.Key.Kind != guest.RawExact {
			if sums.Values[0] != 1 {
				t.Errorf("the acquisitions of a probe are %v", sums.Values[0])
			}
			continue
		}
		got[cell{key.Class, r.Tree.Node(n.Parent).Key.Frame}] = *sums
	}
	for c, want := range map[cell]fold.EventSums{
		{"A", 1}: {Events: 300, Values: [3]float64{3000}}, {"A", 2}: {Events: 100, Values: [3]float64{1000}},
		{"B", 2}: {Events: 50, Values: [3]float64{500}},
		{"C", 1}: {Events: 3, Values: [3]float64{30}}, {"C", 2}: {Events: 3, Values: [3]float64{30}},
	} {
		if g := got[c]; g.Events != want.Events || math.Abs(g.Values[0]-want.Values[0]) > 1e-9 {
			t.Errorf("%v: %+v, want %+v", c, g, want)
		}
	}
	if math.Abs(all-4561) > 1e-6 {
		t.Errorf("%v in all", all)
	}
}

// The frame of a place equals the frame that the kernel side gives to a thread there.
func TestEnterFrame(t *testing.T) {
	f := enterFrame(Place{Address: 0x7f0000012345, Version: 77}, 0x7f0000000000)
	if f.Kind() != bpf.FrameJIT || f.CompileID() != 77 || f.CodeOffset() != 0x12345 {
		t.Errorf("kind %v, compile id %d, offset %#x", f.Kind(), f.CompileID(), f.CodeOffset())
	}
}
