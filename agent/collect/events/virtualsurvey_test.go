package events

import (
	"errors"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/events/probes"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/source"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// locksOf returns the sums of a window's waits for locks.
func locksOf(w *fold.Window, p *fold.Process) (sum fold.EventSums) {
	for row := range maps.Values(w.EventSet(p).ByKind(profile.Locks).Rows) {
		sum.Add(row)
	}
	return sum
}

// What a survey found stands for the time since the one before, in windows that ended between them
// for the part that is theirs.
func TestSurvey(t *testing.T) {
	s := fold.NewState(fold.StateOptions{Submit: func(*guest.Process) {}})
	p := s.Process(&bpf.Header{Pid: 7, Start: 1})
	const begin, end = 10 * time.Second, 15 * time.Second
	found := virtualLook{weight: 1, waiting: []waitingVirtual{
		{VirtualDoing: vmruntime.VirtualDoing{State: vmruntime.VirtualParked, Class: "Sync"}, weight: 3},
		{VirtualDoing: vmruntime.VirtualDoing{State: vmruntime.VirtualBlocked, Class: "Gate"}, weight: 5},
	}}
	parks := [probes.VirtualKinds]time.Duration{probes.VirtualParks: begin}
	all := surveys{p.Process: {until: parks, last: found, seen: 1}}
	first, second := fold.NewWindow(nil), fold.NewWindow(nil)
	first.Began, second.Began = 5*time.Second, end
	all.finish(s, first, end)
	if got, want := locksOf(first, p).Values[2], 3*float64(end-begin); got != want {
		t.Errorf("the first window has %v ns, want %v: monitors are not surveyed", got, want)
	}
	const next = 17 * time.Second
	all.finish(s, second, next)
	got := locksOf(second, p)
	if want := 3 * float64(next-end); got.Values[2] != want || got.Known[2] != want || got.Values[0] != 0 ||
		got.Values[1] != 0 {
		t.Errorf("the second window has %+v, want %v ns of waits that are counted elsewhere", got, want)
	}
	failing := &survey{fails: mostFailures}
	if nobody := (*survey)(nil); nobody.any() || nobody.failed() || failing.coversKind(probes.VirtualParks) {
		t.Error("lengths come from no survey")
	}
	var names int
	all.needNames(p, func(guest.RawFrame) { names++ })
	if names != 0 {
		t.Errorf("%d frames of no stack", names)
	}
}

// A turn is a wait of a thread whose truth is known.
type turn struct{ from, to time.Duration }

// takeTurns has threads wait and pause for exponentially distributed times until end. It returns
// the waits of each, and their time.
func takeTurns(r *rand.Rand, threads int, wait, pause, end time.Duration) (all [][]turn, truth time.Duration) {
	all = make([][]turn, threads)
	for i := range all {
		waits := r.Float64() < float64(wait)/float64(wait+pause)
		for at := time.Duration(0); at < end; waits = !waits {
			mean := pause
			if waits {
				mean = wait
			}
			to := min(at+time.Duration(r.ExpFloat64()*float64(mean)), end)
			if waits {
				all[i] = append(all[i], turn{at, to})
				truth += to - at
			}
			at = to
		}
	}
	return all, truth
}

// Of the 95 % intervals of surveyed sums, about as many hold the truth, whatever threads do:
// whether all of them wait or hardly one does, for long or briefly.
func TestSurveyedInterval(t *testing.T) {
	const (
		trials = 200
		length = 20 * time.Second
		// An interval holds with probability 0.95. That fewer than 180 of 200 do by chance is less
		// likely than 0.2 %: the binomial distribution's tail. The numbers are drawn from fixed
		// seeds.
		least = 180
	)
	for _, tt := range []struct {
		name             string
		threads, drawn   int
		wait, pause      time.Duration
		period           time.Duration
		narrow, unbiased float64 // the mean half width and the mean error, as parts of the mean truth, are no larger
	}{
		{"nearly all wait", 400, 100, time.Second, 10 * time.Millisecond, time.Second, 0.05, 0.01},
		{"half of them do", 400, 100, time.Second, time.Second, time.Second, 0.15, 0.02},
		{"few do, for long", 400, 100, 5 * time.Second, 200 * time.Second, 500 * time.Millisecond, 0.8, 0.1},
		{"few do, briefly", 400, 400, 5 * time.Millisecond, 500 * time.Millisecond, 500 * time.Millisecond, 0.35, 0.05},
		{"hardly one does", 200, 200, 5 * time.Millisecond, 2 * time.Second, 250 * time.Millisecond, 0.6, 0.1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			holds, truths, sums, widths := 0, 0., 0., 0.
			for trial := range trials {
				r := rand.New(rand.NewPCG(1, uint64(trial)))
				threads, truth := takeTurns(r, tt.threads, tt.wait, tt.pause, length)
				sum, within := surveyTurns(t, r, threads, tt.drawn, tt.period, length)
				if math.Abs(sum-float64(truth)) <= within {
					holds++
				}
				truths, sums, widths = truths+float64(truth), sums+sum, widths+within
			}
			off, width := math.Abs(sums-truths)/truths, widths/truths
			t.Logf("%d of %d intervals hold; the half width is %.3f and the mean error %.3f of %v", holds, trials,
				width, off, time.Duration(truths/trials))
			if holds < least || width > tt.narrow || off > tt.unbiased {
				t.Errorf("%d of %d intervals hold, want %d; half width %.3f, mean error %.3f", holds, trials, least,
					width, off)
			}
		})
	}
}

// surveyTurns surveys threads in each period at a moment that is drawn, and returns the sum and
// half of its interval.
func surveyTurns(
	t *testing.T, r *rand.Rand, threads [][]turn, drawn int, period, length time.Duration,
) (sum, within float64) {
	s := fold.NewState(fold.StateOptions{Submit: func(*guest.Process) {}})
	p := s.Process(&bpf.Header{Pid: 7, Start: 1})
	w := fold.NewWindow(nil)
	const began = time.Hour
	w.Began = began
	of := &survey{until: [probes.VirtualKinds]time.Duration{probes.VirtualParks: began}}
	add := func(epoch uint32, event *fold.Event) { w.AddLockWait(s, p, 7, epoch, event) }
	look := func(l *fold.Look) { w.AddLook(p, l) }
	step := len(threads) / drawn
	for begin := time.Duration(0); begin < length; begin += period {
		at := begin + time.Duration(r.Int64N(int64(period)))
		of.last = virtualLook{weight: float64(step)}
		for i := r.IntN(step); i < len(threads); i += step {
			if slices.ContainsFunc(threads[i], func(turn turn) bool { return turn.from <= at && at < turn.to }) {
				doing := vmruntime.VirtualDoing{State: vmruntime.VirtualParked, Class: "Sync"}
				of.last.waiting = append(of.last.waiting, waitingVirtual{VirtualDoing: doing, weight: float64(step)})
			}
		}
		of.seen++
		of.each(p.Process, began+at, add)
		of.looks(began+at, false, look)
		of.until[probes.VirtualParks] = began + at
	}
	of.each(p.Process, began+length, add)
	of.looks(began+length, true, look)
	names := p.Names()
	defer names.Close()
	all, _ := w.EventSet(p).Profile(names, 0, &fold.CoveredParts{}, nil)
	for _, e := range all {
		if e.Kind == profile.Locks {
			for i := range e.Rows {
				sum += e.Rows[i].Values[profile.Locks.Main()]
			}
			within = e.Coverage.Within()
		}
	}
	return sum, within
}

// Waits whose stacks were read stand for the others of their class. Those of a class of which none
// was read have no stack.
func TestStandFor(t *testing.T) {
	of := func(class string, weight float64, stack []byte) waitingVirtual {
		return waitingVirtual{VirtualDoing: vmruntime.VirtualDoing{State: vmruntime.VirtualParked, Class: class},
			weight: weight, stack: stack}
	}
	read := []byte{1}
	waiting := []waitingVirtual{of("A", 2, nil), of("A", 2, nil), of("A", 2, nil), of("B", 3, nil)}
	// The last one has gone on.
	got := standFor(waiting, []waitingVirtual{of("A", 2, read), of("A", 2, read), of("", 2, read)})
	sums := map[string]float64{}
	for i := range got {
		if (got[i].stack != nil) != (got[i].Class == "A") {
			t.Errorf("%+v", got[i])
		}
		sums[got[i].Class] += got[i].weight
	}
	if !maps.Equal(sums, map[string]float64{"A": 6, "B": 3}) {
		t.Errorf("the waits stand for %v", sums)
	}
	chosen := drawByClass([]waitingVirtual{of("A", 1, nil), of("B", 1, nil), of("A", 1, nil), of("B", 1, nil)}, 2,
		func(n int) int { return n - 1 })
	if !slices.Equal(chosen, []int{2, 3}) {
		t.Errorf("waits %v are drawn, want one of each class", chosen)
	}
}

// What is known of waits that ended before the first survey is not counted again.
func TestSurveyLeavesKnown(t *testing.T) {
	s := &survey{until: [probes.VirtualKinds]time.Duration{probes.VirtualParks: 10 * time.Second},
		known: [probes.VirtualKinds]time.Duration{probes.VirtualParks: 6 * time.Second}}
	s.last.waiting = []waitingVirtual{{VirtualDoing: vmruntime.VirtualDoing{State: vmruntime.VirtualParked,
		Class: "Sync"}, weight: 3}}
	for range 2 {
		if s.leaveKnown(20 * time.Second); s.until[probes.VirtualParks] != 12*time.Second {
			t.Fatalf("surveys stand for the time since %v, want 12s: 6 s of 3 threads are known", s.until[probes.VirtualParks])
		}
	}
}

// A survey that fails is tried again, some times. What it would have had is said to be missing.
func TestSurveyFails(t *testing.T) {
	e := &Source{Probes: &probes.Probes{}, surveys: surveys{},
		services: &source.Services{Owner: fold.NewOwner(fold.NewState(fold.StateOptions{}),
			func(err error) { t.Error(err) }), Log: slog.New(slog.DiscardHandler)}}
	p := &guest.Process{}
	s := &survey{until: [probes.VirtualKinds]time.Duration{probes.VirtualParks: time.Second}}
	e.surveys[p] = s
	if s.lack() == "" {
		t.Error("nothing is said of a survey that was not finished")
	}
	for i := range mostFailures {
		if s.failed() {
			t.Fatalf("no survey is tried again after %d", i)
		}
		e.noSurvey(p, errors.New("no list"))
		if !strings.Contains(s.lack(), "no list") {
			t.Errorf("after %d failures: %q", i+1, s.lack())
		}
	}
	if !s.failed() || s.any() {
		t.Error("surveys are tried for ever")
	}
}

// A first look at waiting virtual threads that fails is tried again, some times. Until one succeeds,
// a profile says that waits may be missing.
func TestFirstLookFails(t *testing.T) {
	p, unseen := &guest.Process{}, &firstLook{}
	e := &Source{surveys: surveys{}, seeded: map[*guest.Process]*firstLook{p: unseen}}
	lack := func() string { return e.surveyedParts()[p].lack }
	if lack() != "" {
		t.Errorf("before the first look: %q", lack())
	}
	unseen.note(errors.New("no list"))
	if !strings.Contains(lack(), "no list") {
		t.Errorf("after a failure: %q", lack())
	}
	if unseen.note(nil); lack() != "" || !unseen.finished() {
		t.Errorf("after a success: %q", lack())
	}
	unseen.note(errNoStacks)
	e.surveys[p] = &survey{seen: 1, until: [probes.VirtualKinds]time.Duration{probes.VirtualParks: time.Second}}
	if got := e.surveyedParts()[p]; got.lack != "" || !got.any {
		t.Errorf("surveys know of all waits: %+v", got)
	}
}

// A wait that lasts still counts up to the end of each window, and no longer once surveys say how
// long waits are.
func TestVirtualStill(t *testing.T) {
	s := fold.NewState(fold.StateOptions{Submit: func(*guest.Process) {}})
	begin := virtualRecord(bpf.ObservedFreeze, 0, "java.util.concurrent.Semaphore$FairSync", 5, uint64(10*time.Second))
	p := s.Process(begin.Header)
	var v virtuals
	if kept, ok := v.begin(s, p, begin, &fold.Event{TID: 8, Thread: "carrier", Every: 2}, false, asIs); !kept || !ok {
		t.Fatal(kept, ok)
	}
	always := func(*guest.Process, int) bool { return true }
	for i, want := range []float64{2e9, 6e9} {
		w := fold.NewWindow(nil)
		w.Began = []time.Duration{5 * time.Second, 11 * time.Second}[i]
		end := []time.Duration{11 * time.Second, 14 * time.Second}[i]
		v.finish(s, w, end, func(*guest.Process, int) bool { return false })
		v.finish(s, w, end, always)
		if got := locksOf(w, p); got.Values[2] != want || got.Values[0] != 0 || (got.Values[1] != 0) != (i == 0) {
			t.Errorf("window %d has %v, want %v ns", i, got.Values, want)
		}
	}
	if w, ok := v.end(p, virtualRecord(bpf.ObservedThaw, 0, "", 5, uint64(10*time.Second), uint64(time.Second)),
		&fold.Event{Every: 2}); !ok || w == nil || w.event.Lock == nil || !w.event.Lock.Counted ||
		w.event.Thread != virtualName {
		t.Errorf("the wait ends with %+v", w)
	}
	v.begin(s, p, begin, &fold.Event{Every: 1}, false, asIs)
	v.settle(s, p.Process, probes.VirtualBlocks, time.Minute, true)
	if len(v.waiting) != 1 {
		t.Error("a wait of another kind was settled")
	}
	if v.settle(s, p.Process, probes.VirtualParks, time.Minute, true); len(v.waiting) != 0 || v.frames != 0 {
		t.Errorf("%d waits are left", len(v.waiting))
	}
}
