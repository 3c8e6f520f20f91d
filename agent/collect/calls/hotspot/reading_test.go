package hotspot

import (
	"context"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls/estimate"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/source"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A startingVM is a VM with counters, of whose methods only some have been called yet.
type startingVM struct{ counts []vmruntime.MethodCounts }

func (v startingVM) Methods() (all []uint64, err error) {
	for i := range v.counts {
		all = append(all, v.counts[i].Method)
	}
	return all, nil
}

func (v startingVM) Counts([]uint64) ([]vmruntime.MethodCounts, time.Duration, error) {
	return v.counts, 0, nil
}

// If a method had not been called when all counters were read, all of its counts are from the time
// since. So are invocations that only MethodCounters count, such as those in code of level 2.
func TestFirstReading(t *testing.T) {
	const young, before, unread, late, loop = 1, 2, 3, 4, 5
	first, err := readAll(startingVM{[]vmruntime.MethodCounts{
		{Method: young}, // it has MethodCounters, and was not called
		{Method: before, Data: 1, Invocations: 400, Before: 200, Sites: []vmruntime.SiteCounts{
			{BCI: 7, Others: 100, Rows: []vmruntime.RowCount{{Klass: 1, Count: 200}}},
		}},
		{Method: unread, Data: 1, Unreadable: true},
		{Method: loop, Before: 1}, // it runs, and its calls are not counted
	}})
	if err != nil {
		t.Fatal(err)
	}
	later := first.at + 10*time.Second
	profile := func(m uint64) *vmruntime.MethodProfile {
		return &vmruntime.MethodProfile{
			Method: m, Counted: true, Invocations: 900, Before: 700,
			Calls: []vmruntime.CallCount{{BCI: 3}, {BCI: 7, Count: 500}},
		}
	}
	rates := func(r *reading, m uint64) estimate.Profile {
		to := estimate.Profile{Sites: make([]estimate.Site, 2)}
		r.rates(profile(m), later, 10*time.Second, &to)
		return to
	}
	for _, test := range []struct {
		method     uint64
		known      bool
		rate, call float64
	}{
		// The entries of loop are counted all the same.
		{young, true, 160, 50}, {before, true, 100, 20}, {unread, false, 0, 0}, {late, true, 160, 50},
		{loop, false, 159.9, 0},
	} {
		got := rates(&first, test.method)
		if want := map[uint64]float64{young: 900. / 1600, before: 0.5,
			late: 900. / 1600}[test.method]; got.Covered != want {
			t.Errorf("method %d: %v of the executions are counted, want %v", test.method, got.Covered, want)
		}
		if got.Known != test.known || got.Entered != test.rate || got.Sites[1].Rate != test.call ||
			got.Sites[0].Rate != 0 {
			t.Errorf("method %d: %+v", test.method, got)
		}
	}
	some := first
	some.whole = false
	if got := rates(&some, late); got.Known {
		t.Errorf("a method that was not read: %+v", got)
	}
}

// A window keeps the first counts of each method that were read in it.
func TestMergeReadings(t *testing.T) {
	counts := func(at time.Duration, n uint64) methodCounts { return methodCounts{at: at, invocations: n} }
	var r reading
	r.merge(&reading{at: 1, counted: map[uint64]methodCounts{1: counts(1, 10)}})
	before := r
	r.merge(&reading{at: 2, counted: map[uint64]methodCounts{1: counts(2, 20), 2: counts(2, 30)}})
	if len(r.counted) != 2 || r.counted[1].invocations != 10 || r.counted[2].at != 2 || r.at != 1 {
		t.Errorf("merged: %+v", r)
	}
	if len(before.counted) != 1 {
		t.Error("a copy has changed")
	}
	whole := reading{at: 1, counted: map[uint64]methodCounts{1: counts(1, 10)}, whole: true}
	whole.merge(&r)
	if len(whole.counted) != 1 {
		t.Errorf("method 2 had not been called: %+v", whole)
	}
}

// A JVM is met once, when it was sampled, and forgotten when it has exited.
func TestMeetOnce(t *testing.T) {
	e, state := idleEngine()
	for pid := 1; pid <= 3; pid++ {
		state.Table[pid] = &fold.Process{Process: &guest.Process{PID: pid}}
	}
	sampled, idle, native := state.Table[1], state.Table[2], state.Table[3]
	for _, p := range []*fold.Process{sampled, native} {
		p.Top.Add([]guest.RawFrame{{Frame: compiledAt(run, 0x80), Kind: guest.RawExact}}, 1)
	}
	sampled.Attachment.Store(1)
	idle.Attachment.Store(2)
	if got := e.withoutBaseline(); len(got) != 1 || got[0] != sampled {
		t.Fatalf("strangers: %v", got)
	}
	e.baselined[sampled] = struct{}{}
	if got := e.withoutBaseline(); len(got) != 0 {
		t.Errorf("it was met: %v", got)
	}
	sampled.Exited.Store(true)
	if got := e.withoutBaseline(); len(got) != 0 || len(e.baselined) != 0 {
		t.Errorf("it has exited: %v, %v", got, e.baselined)
	}
}

// Counters are marked in windows that have samples of the process, and only in these.
func TestMarkReading(t *testing.T) {
	p := &fold.Process{Process: &guest.Process{PID: 1}}
	with := fold.NewWindow(nil)
	e, state := idleEngine()
	state.Open(with)
	r := &reading{at: time.Second, counted: map[uint64]methodCounts{1: {}}, whole: true}
	e.mark(p, r)
	if len(with.Calls) != 0 {
		t.Error("a window without samples of it has its counters")
	}
	with.Processes[p] = map[fold.ThreadKey]*fold.Thread{}
	with.Calls[p] = &fold.CallSet{} // there are calls of other engines
	e.mark(p, r)
	if got := taskOf(with, p, 0).reading; !got.whole || got.at != time.Second {
		t.Errorf("reading: %+v", got)
	}
}

// idleEngine returns an engine that does nothing by itself, and its state.
func idleEngine() (*Engine, *fold.State) {
	state := fold.NewState(fold.StateOptions{})
	owner := fold.NewOwner(state, func(err error) { panic(err) })
	return &Engine{Services: &source.Services{Owner: owner}, baselined: map[*fold.Process]struct{}{}}, state
}

// If an estimate fails, the kept one is used if it is from the same window; the note says how far
// it reaches.
func TestKeptEstimate(t *testing.T) {
	of := task{process: fold.NewProcess(proc.Identity{PID: 9}, false), since: 10 * time.Second, length: 5 * time.Second}
	own := &jvm{kept: calls.Estimated{Windows: 7}, keptAt: 14 * time.Second, keptSince: 10 * time.Second}
	for _, test := range []struct {
		own  *jvm
		err  error
		want string // "" for none
	}{
		{own, proc.ErrGone, "process 9 ended: its calls cover only 4s of the window"},
		{own, context.DeadlineExceeded, "the estimate of the calls of process 9 was not ready in time: they cover " +
			"only 4s of the window"},
		{own, context.Canceled, ""},
		{nil, context.DeadlineExceeded, ""},
		{&jvm{kept: calls.Estimated{Windows: 7}, keptAt: 14 * time.Second, keptSince: 12 * time.Second},
			context.DeadlineExceeded,
			"the estimate of the calls of process 9 was not ready in time: they cover only 2s of the window"},
		// These estimates are of the next window, and of an earlier one.
		{&jvm{keptAt: 16 * time.Second, keptSince: 15 * time.Second}, context.DeadlineExceeded, ""},
		{&jvm{keptAt: 9 * time.Second, keptSince: 5 * time.Second}, context.DeadlineExceeded, ""},
		// This estimate is of a longer window.
		{&jvm{keptAt: 14 * time.Second, keptSince: 5 * time.Second}, context.DeadlineExceeded, ""},
	} {
		kept, ok := test.own.until(test.err, of)
		if kept.Note != test.want || ok != (test.want != "") || ok && kept.Windows != 7 {
			t.Errorf("%v: %+v, %v; want the note %q", test.err, kept, ok, test.want)
		}
	}
}
