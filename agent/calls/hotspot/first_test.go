package hotspot

import (
	"context"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/source"
	"github.com/vmprof-agent/vmprof-agent/agent/target"
)

// A JVM is met once, when it was sampled, and forgotten when it has exited.
func TestMeetOnce(t *testing.T) {
	e, state := idleEngine()
	for pid := 1; pid <= 3; pid++ {
		state.Table[pid] = &fold.Process{Process: &target.Process{PID: pid}}
	}
	sampled, idle, native := state.Table[1], state.Table[2], state.Table[3]
	for _, p := range []*fold.Process{sampled, native} {
		p.Top.Add([]target.RawFrame{{Frame: compiledAt(run, 0x80), Kind: target.RawExact}}, 1)
	}
	sampled.Attachment.Store(1)
	idle.Attachment.Store(2)
	if got := e.strangers(); len(got) != 1 || got[0] != sampled {
		t.Fatalf("strangers: %v", got)
	}
	e.met[sampled] = struct{}{}
	if got := e.strangers(); len(got) != 0 {
		t.Errorf("it was met: %v", got)
	}
	sampled.Exited.Store(true)
	if got := e.strangers(); len(got) != 0 || len(e.met) != 0 {
		t.Errorf("it has exited: %v, %v", got, e.met)
	}
}

// Counters are marked in windows that have samples of the process, and only in these.
func TestMarkReading(t *testing.T) {
	p := &fold.Process{Process: &target.Process{PID: 1}}
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

// idleEngine does nothing by itself, and has a state that nobody else has.
func idleEngine() (*Engine, *fold.State) {
	state := fold.NewState(fold.StateOptions{})
	owner := fold.NewOwner(state, func(err error) { panic(err) })
	return &Engine{Services: &source.Services{Owner: owner}, met: map[*fold.Process]struct{}{}}, state
}

// Of an estimate that fails, what was kept counts, if it is of the same window; the note says how far it reaches.
func TestKeptEstimate(t *testing.T) {
	of := task{process: fold.NewProcess(proc.Identity{PID: 9}, false), since: 10 * time.Second, length: 5 * time.Second}
	own := &guest{kept: Estimated{Windows: 7}, keptAt: 14 * time.Second, keptSince: 10 * time.Second}
	for _, test := range []struct {
		own  *guest
		err  error
		want string // "" for none
	}{
		{own, proc.ErrGone, "process 9 ended: its calls are those of 4s of the window"},
		{own, context.DeadlineExceeded, "the estimate of the calls of process 9 was not ready in time: they are those of 4s of the window"},
		{own, context.Canceled, ""},
		{nil, context.DeadlineExceeded, ""},
		{&guest{kept: Estimated{Windows: 7}, keptAt: 14 * time.Second, keptSince: 12 * time.Second}, context.DeadlineExceeded,
			"the estimate of the calls of process 9 was not ready in time: they are those of 2s of the window"},
		{&guest{keptAt: 16 * time.Second, keptSince: 15 * time.Second}, context.DeadlineExceeded, ""}, // of the next window
		{&guest{keptAt: 9 * time.Second, keptSince: 5 * time.Second}, context.DeadlineExceeded, ""},
		{&guest{keptAt: 14 * time.Second, keptSince: 5 * time.Second}, context.DeadlineExceeded, ""}, // of a longer window
	} {
		kept, ok := test.own.until(test.err, of)
		if kept.Note != test.want || ok != (test.want != "") || ok && kept.Windows != 7 {
			t.Errorf("%v: %+v, %v; want the note %q", test.err, kept, ok, test.want)
		}
	}
}
