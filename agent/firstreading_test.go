package agent

import (
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/target"
)

// A JVM is met once, when it was sampled, and forgotten when it has exited.
func TestMeetOnce(t *testing.T) {
	a := &Agent{table: map[int]*fold.Process{}}
	e := &estimator{agent: a, met: map[*fold.Process]struct{}{}}
	for pid := 1; pid <= 3; pid++ {
		a.table[pid] = &fold.Process{Process: &target.Process{PID: pid}}
	}
	sampled, idle, native := a.table[1], a.table[2], a.table[3]
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
	with := &Window{processes: map[*fold.Process]map[fold.ThreadKey]*fold.Thread{}, calls: map[*fold.Process]*windowCalls{}}
	a := &Agent{windows: map[*Window]struct{}{with: {}}}
	r := &profileReading{at: time.Second, counted: map[uint64]methodCounts{1: {}}, whole: true}
	a.markReading(p, r)
	if len(with.calls) != 0 {
		t.Error("a window without samples of it has its counters")
	}
	with.processes[p] = map[fold.ThreadKey]*fold.Thread{}
	with.calls[p] = &windowCalls{} // there are calls of other engines
	a.markReading(p, r)
	if got := with.calls[p].reading; !got.whole || got.at != time.Second {
		t.Errorf("reading: %+v", got)
	}
}
