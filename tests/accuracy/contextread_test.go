package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/sink"
	"github.com/vmprof-agent/vmprof-agent/agent/stored"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
)

// Frames of a made recording.
var (
	madeLeaf   = symbolize.Frame{Function: "a.B.leaf", Kind: symbolize.KindJIT, Inlined: true}
	madeInner  = symbolize.Frame{Function: "a.B.inner", Kind: symbolize.KindJIT}
	madeMain   = symbolize.Frame{Function: "a.B.main", Kind: symbolize.KindJIT}
	madeOther  = symbolize.Frame{Function: "a.B.other", Kind: symbolize.KindJIT}
	madeNative = symbolize.Frame{Function: "read", Kind: symbolize.KindNative}
)

// madePID is the process of a made recording. Another one is in it, too.
const madePID = 4711

// madeWindow is one window of partial walks: 8 samples below main, of which half newly entered inner and what is inlined
// there, and 2 in native code.
func madeWindow(start int64) *profile.Profile {
	symbols := func(frames ...symbolize.Frame) (stack []symbolize.Symbol) {
		for _, f := range frames {
			stack = append(stack, symbolize.Intern(f))
		}
		return stack
	}
	tree := new(cct.Tree[symbolize.Symbol])
	for range 4 {
		tree.AddNew(symbols(madeLeaf, madeInner, madeMain), 2, 1)
		tree.AddNew(symbols(madeMain), 0, 1)
	}
	tree.AddNew(symbols(madeNative), 1, 2)
	other := new(cct.Tree[symbolize.Symbol])
	other.AddNew(symbols(madeOther), 1, 100)
	process := func(pid int, tree *cct.Tree[symbolize.Symbol], walked, linked uint64) *profile.Process {
		return &profile.Process{
			PID: pid, Comm: "java (pid 1)",
			Threads: []*profile.Thread{{TID: pid, Name: "main", Tree: tree}},
			Contexts: &profile.Contexts{
				Mode: profile.ContextPartial, Walked: walked, Linked: linked,
				Check: &profile.ContextCheck{Samples: linked, Right: [3]uint64{linked, linked, linked}},
			},
		}
	}
	return &profile.Profile{
		Start: time.Unix(start, 0), Duration: 10 * time.Second, Period: time.Millisecond, Event: "cpu-clock",
		Processes: []*profile.Process{process(madePID, tree, 3, 7), process(madePID+1, other, 0, 100)},
	}
}

// madeRecording has so many windows.
func madeRecording(t *testing.T, windows int) *profiler.Recording {
	t.Helper()
	w := sink.NewWindows(sink.Time)
	for i := range windows {
		if err := w.Add(madeWindow(int64(10 * i))); err != nil {
			t.Fatal(err)
		}
	}
	p, err := w.Profile()
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if err := p.Write(&file); err != nil {
		t.Fatal(err)
	}
	if p, err = pprof.Parse(&file); err != nil {
		t.Fatal(err)
	}
	return &profiler.Recording{Profile: p}
}

// What the agent writes is what is read here.
func TestReadContexts(t *testing.T) {
	length := contextLength{window: 10 * time.Second, windows: 2, least: 2}
	got, err := readContexts(madeRecording(t, 3), madePID, length)
	if err != nil {
		t.Fatal(err)
	}
	if sum := got.sum(); len(got.windows) != 2 || sum.Walked != 6 || sum.Linked != 14 || sum.Check.Samples != 14 {
		t.Errorf("got %d windows, in all %+v", len(got.windows), sum)
	}
	// Of 10 samples in a window 8 are in Java. 8 new frames there and one in native code; 4 stacks of three frames, 6 of one.
	if !near(got.java, 0.8) || !near(got.fresh, 0.9) || !near(got.frames, 1.8) {
		t.Errorf("in Java %v, %v new frames of %v", got.java, got.fresh, got.frames)
	}
	for _, name := range []string{hotMethods, partialCCT} {
		if l := got.likenessOf(name); !near(l.correlation, 1) || !near(l.overlap, 100) {
			t.Errorf("%s of equal windows: %+v", name, l)
		}
	}
}

func TestReadContextsErrors(t *testing.T) {
	length := contextLength{windows: 2, least: 2}
	for what, change := range map[string]func(*profiler.Recording){
		"lost samples":       func(r *profiler.Recording) { r.Stats.Attempted++ },
		"samples too many":   func(r *profiler.Recording) { r.Profile.Sample[0].Value[0]++ },
		"no sample column":   func(r *profiler.Recording) { r.Profile.SampleType[0].Type = "objects" },
		"nothing said of it": func(r *profiler.Recording) { r.Profile.Comments = nil },
		"a window missing": func(r *profiler.Recording) {
			for _, s := range r.Profile.Sample {
				s.NumLabel["window"][0] += 2
			}
		},
	} {
		r := madeRecording(t, 2)
		change(r)
		if got, err := readContexts(r, madePID, length); err == nil {
			t.Errorf("%s: got %+v", what, got)
		}
	}
	if _, err := readContexts(madeRecording(t, 2), 1, length); err == nil {
		t.Error("read a process that is not there")
	}
}

func TestFirstWindows(t *testing.T) {
	lines := func(numbers ...int) (lines []contextLine) {
		for _, n := range numbers {
			lines = append(lines, contextLine{stored.ProcessContexts{Window: int64(n)}})
		}
		return lines
	}
	for _, test := range []struct {
		length contextLength
		have   []contextLine
		want   int // windows; 0 for an error
	}{
		{contextLength{windows: 1, least: 1}, lines(0), 1},
		{contextLength{windows: 3, least: 3}, lines(1, 2, 3, 4), 3},
		{contextLength{windows: 3, least: 3}, lines(1, 2), 0},
		{contextLength{windows: 3, least: 2}, lines(1, 2), 2},
		{contextLength{windows: 3, least: 3}, lines(2, 3, 4), 0},
		{contextLength{windows: 3, least: 2}, lines(1, 2, 4), 2},
	} {
		got, err := test.length.first(test.have)
		if len(got) != test.want || (err == nil) != (test.want > 0) {
			t.Errorf("%+v of %d lines: got %d, %v", test.length, len(test.have), len(got), err)
		}
	}
}
