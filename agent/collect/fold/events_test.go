package fold

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold/foldtest"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

// eventAt is one event in a stack that stands for n objects of a class.
func eventAt(user, class string, tid uint32, n float64) *Event {
	raw, _ := foldtest.Frames(user)
	e := &Event{Kind: profile.Allocations, TID: tid, Thread: fmt.Sprint("thread-", tid),
		Labels: profile.EventLabels{Class: class}}
	for _, f := range raw {
		e.Stack = append(e.Stack, guest.RawFrame{Frame: f})
	}
	e.Sums = EventSums{Events: 1, Values: [profile.MaxEventValues]float64{n, 10 * n}}
	return e
}

// rowsOf returns the rows of a kind as text, with the names of their contexts, outermost first.
func rowsOf(e *profile.Events) (rows []string) {
	for _, r := range e.Rows {
		var path []string
		for at := r.Context; at != cct.Root; at = e.Tree.Node(at).Parent {
			path = append(path, e.Tree.Node(at).Key.Value().Function)
		}
		slices.Reverse(path)
		rows = append(rows, fmt.Sprintf("%s %s %s %s%s: %d, %.0f, %.0f", strings.Join(path, "/"), r.Thread, r.Class,
			r.Probe, r.Value, r.Events, r.Values[0], r.Values[1]))
	}
	return rows
}

func TestEventSet(t *testing.T) {
	var s EventSet
	p := guest.NewProcess(proc.Identity{PID: 1})
	foldtest.NameFrames(p, "a:1 b:2 b:3 c:4")
	for i, e := range []struct {
		*Event
		fresh bool
	}{
		{eventAt("a:1 b:2", "A", 1, 100), true},
		{eventAt("a:1 b:2", "A", 1, 50), false},
		{eventAt("a:1 b:2", "B", 1, 1), false},
		{eventAt("a:1 b:2", "A", 2, 7), false},
		{eventAt("a:1 b:3", "A", 1, 3), true}, // another place with the same name
		{eventAt("a:1 b:2 c:4", "A", 1, 4), true},
		{eventAt("", "A", 1, 5), false},
	} {
		if fresh := s.Add(e.Event); fresh != e.fresh {
			t.Errorf("event %d: new frames: %v, want %v", i, fresh, e.fresh)
		}
	}
	again := eventAt("a:1 b:2", "C", 1, 2)
	again.Nth = 1 // another value of an execution that was already counted
	s.Add(again)
	other := eventAt("a:1", "", 1, 1)
	other.Kind = profile.Locks
	s.Add(other)

	all := namedBy(p, &s, &CoveredParts{})
	if len(all) != 2 || all[0].Kind != profile.Allocations || all[1].Kind != profile.Locks {
		t.Fatalf("%d kinds", len(all))
	}
	got, want := rowsOf(all[0]), []string{
		" thread-1 A : 1, 5, 50",
		"A/B thread-1 A : 3, 153, 1530",
		"A/B thread-1 B : 1, 1, 10",
		"A/B thread-1 C : 1, 2, 20",
		"A/B thread-2 A : 1, 7, 70",
		"A/B/C thread-1 A : 1, 4, 40",
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("rows\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if total := s.ByKind(profile.Allocations).Tree.Total(); total != 7 {
		t.Errorf("the tree has %d events, want 7", total)
	}
	var named int
	s.Frames(func(guest.RawFrame) { named++ })
	if named != 5 { // a, two b, c; and a of Locks
		t.Errorf("%d frames to name, want 5", named)
	}
}

// An event without a row of its own loses its labels, but its count and values are kept.
func TestEventSetFull(t *testing.T) {
	var s EventSet
	const beyond = 10
	value := func(class string) *Event {
		e := eventAt("a:1", class, 1, 2)
		return e
	}
	for i := range MaxEventRows + beyond {
		s.Add(value(fmt.Sprint("C", i)))
	}
	s.Add(value("C0")) // a row exists for this one
	late := value("late")
	late.Labels.Probe, late.Labels.Value = "f", "16-31"
	s.Add(late)
	r := s.ByKind(profile.Allocations)
	if r.overflow != beyond+1 || len(r.Rows) != MaxEventRows+2 {
		t.Errorf("%d events without labels, %d rows; want %d, %d", r.overflow, len(r.Rows), beyond+1, MaxEventRows+2)
	}
	p := guest.NewProcess(proc.Identity{PID: 1})
	foldtest.NameFrames(p, "a:1")
	e := namedBy(p, &s, &CoveredParts{})[0]
	var events uint64
	var sum float64
	for _, row := range e.Rows {
		events, sum = events+row.Events, sum+row.Values[0]
	}
	if want := uint64(MaxEventRows + beyond + 2); events != want || sum != 2*float64(want) {
		t.Errorf("%d events, %.0f objects; want %d, %d", events, sum, want, 2*want)
	}
	rows := rowsOf(e)
	for _, want := range []string{fmt.Sprintf("   : %d, %d, %d", beyond, 2*beyond, 20*beyond), "   f(other): 1, 2, 20",
		"A thread-1 C0 : 2, 4, 40"} {
		if !slices.Contains(rows, want) {
			t.Errorf("no row %q", want)
		}
	}
	if len(e.Basis) != 1 || !strings.Contains(e.Basis[0], fmt.Sprint(beyond+1, " events")) {
		t.Errorf("basis %q", e.Basis)
	}
}

// The interval of a sum contains the truth in about 95 of 100 windows: for drawn events, with
// unequal values and losses; and for allocations whose buffers the window's ends cut. Waits for
// work are not part of it.
func TestInterval(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long, on one thread")
	}
	const windows, every, lost = 2000, 5, 0.02
	rng := rand.New(rand.NewPCG(3, 4))
	for _, c := range []struct {
		name string
		kind profile.EventKind
		lost float64
		// window adds events to the set, and returns their true sum.
		window func(*EventSet) float64
	}{
		{"drawn", profile.Locks, 0, func(s *EventSet) (truth float64) {
			for range 1000 {
				delay := rng.ExpFloat64() * 1e6
				truth += delay
				e := Event{Kind: profile.Locks, Every: every, Sums: EventSums{Events: 1}}
				if e.Sums.Values[2] = every * delay; rng.IntN(every) == 0 {
					s.Add(&e)
				}
				e.Labels.What = profile.WaitForWork
				e.Sums.Values[2] *= 100
				s.Add(&e)
			}
			return truth
		}},
		{"drawn, and some lost", profile.Locks, lost, func(s *EventSet) (truth float64) {
			for range 1000 {
				delay := rng.ExpFloat64() * 1e6
				truth += delay
				if rng.IntN(every) == 0 && rng.Float64() >= lost {
					s.Add(&Event{Kind: profile.Locks, Every: every, Sums: EventSums{Events: 1,
						Values: [profile.MaxEventValues]float64{0, 0, every * delay}}})
				}
			}
			return truth
		}},
		{"values that are drawn together", profile.Values, 0, func(s *EventSet) float64 {
			for range 1000 {
				if rng.IntN(every) != 0 {
					continue
				}
				for nth := range 3 {
					s.Add(&Event{Kind: profile.Values, Every: every, Nth: nth,
						Sums: EventSums{Events: 1, Values: [profile.MaxEventValues]float64{every}}})
				}
			}
			return 3 * 1000
		}},
		{"buffers", profile.Allocations, 0, func(s *EventSet) (truth float64) {
			const buffer, length = 1000, 20_500
			for tid := range uint32(5) {
				for at := rng.Float64() * buffer; at < length; at += buffer {
					s.Add(&Event{Kind: profile.Allocations, TID: tid, Every: 1,
						Sums: EventSums{Events: 1, Values: [profile.MaxEventValues]float64{1, buffer}}})
				}
			}
			return 5 * length
		}},
	} {
		held, wide := 0, 0.0
		for range windows {
			var s EventSet
			truth := c.window(&s)
			e := namedBy(guest.NewProcess(proc.Identity{PID: 1}), &s,
				&CoveredParts{lost: c.lost, lostEvents: uint64(4 * c.lost * 1000 / every)})[0]
			sum := total(e)
			if math.Abs(sum-truth) <= e.Coverage.Within() {
				held++
			}
			wide += e.Coverage.Within() / truth / windows
		}
		t.Logf("%s: ±%.1f %%, holds %.1f %%", c.name, 100*wide, 100*float64(held)/windows)
		// Four standard errors of a share of 0.95 are 0.02; the normal approximation of skewed sums
		// takes one more point.
		if held < windows*92/100 || wide > 0.3 {
			t.Errorf("%s: ±%.1f %%, holds %.1f %%", c.name, 100*wide, 100*float64(held)/windows)
		}
	}
}

// namedBy returns the events of a set with the names that frames of p have.
func namedBy(p *guest.Process, s *EventSet, covered *CoveredParts) []*profile.Events {
	names := p.Names()
	defer names.Close()
	all, _ := s.Profile(names, p.Noticed, covered, nil)
	return all
}

// An object drawn from bytes stands for as many objects of its size as make up those bytes.
func TestAllocation(t *testing.T) {
	for _, c := range []struct {
		size, bytes      uint64
		every            uint32
		objects, ofBytes float64
	}{
		{16, 1 << 18, 1, 1 << 14, 1 << 18},
		{16, 1 << 18, 3, 3 << 14, 3 << 18},
		{24, 100, 1, 100.0 / 24, 100},
		{1 << 20, 1 << 20, 1, 1, 1 << 20}, // outside, for itself
		{16, 0, 1, 0, 0},
		{0, 1 << 18, 1, 0, 0}, // no object has size 0: hostile
	} {
		got := AllocationSums(c.size, c.bytes, c.every)
		want := EventSums{Events: 1, Values: [profile.MaxEventValues]float64{c.objects, c.ofBytes}}
		if got != want {
			t.Errorf("%d bytes, for %d, one in %d: %+v, want %+v", c.size, c.bytes, c.every, got, want)
		}
	}
}
