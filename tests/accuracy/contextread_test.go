package main

import (
	"bytes"
	"math"
	"reflect"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
)

// Frames of a synthetic recording.
var (
	madeLeaf   = symbol.Frame{Function: "a.B.leaf", Kind: symbol.KindJIT, Inlined: true}
	madeInner  = symbol.Frame{Function: "a.B.inner", Kind: symbol.KindJIT}
	madeMain   = symbol.Frame{Function: "a.B.main", Kind: symbol.KindJIT}
	madeOther  = symbol.Frame{Function: "a.B.other", Kind: symbol.KindJIT}
	madeNative = symbol.Frame{Function: "read", Kind: symbol.KindNative}
)

// madePID is the process of a synthetic recording, which also contains another one.
const madePID = 4711

// madeWindow is one window of partial walks: 8 samples below main, of which half newly entered
// inner and the method inlined there, and 2 in native code.
func madeWindow(start int64) *profile.Profile {
	symbols := func(frames ...symbol.Frame) (stack []symbol.Symbol) {
		for _, f := range frames {
			stack = append(stack, symbol.Intern(f))
		}
		return stack
	}
	tree := new(cct.Tree[symbol.Symbol])
	for range 4 {
		tree.AddNew(symbols(madeLeaf, madeInner, madeMain), 2, 1)
		tree.AddNew(symbols(madeMain), 0, 1)
	}
	tree.AddNew(symbols(madeNative), 1, 2)
	other := new(cct.Tree[symbol.Symbol])
	other.AddNew(symbols(madeOther), 1, 100)
	process := func(pid int, tree *cct.Tree[symbol.Symbol], walked, linked uint64) *profile.Process {
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

// madeRecording has that many windows.
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

// The agent's output can be read here.
func TestReadContexts(t *testing.T) {
	length := contextLength{window: 10 * time.Second, windows: 2, least: 2}
	got, err := readContexts(madeRecording(t, 3), madePID, length)
	if err != nil {
		t.Fatal(err)
	}
	if sum := got.sum(); len(got.windows) != 2 || sum.Walked != 6 || sum.Linked != 14 || sum.Check.Samples != 14 {
		t.Errorf("got %d windows, in all %+v", len(got.windows), sum)
	}
	// Of 10 samples in a window 8 are in Java. 8 new frames there and one in native code; 4 stacks
	// of three frames, 6 of one.
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

// chainedLine is a line whose counts add up.
func chainedLine() contextLine {
	return contextLine{stored.ProcessContexts{Comm: "java", PID: 4711, Window: 2, Contexts: profile.Contexts{
		Mode: profile.ContextChain, Walked: 50, Linked: 940, Ambiguous: 30, Fitted: 2, Unplaced: 1,
		Nodes: 346, Shared: 10, Methods: 122, ByDepth: [3]uint64{985, 980, 970}, BySite: [3]uint64{988, 985, 980},
		Check: &profile.ContextCheck{Samples: 940, Right: [3]uint64{930, 920, 900}},
	}}}
}

func lineOf(c profile.Contexts) contextLine { return contextLine{stored.ProcessContexts{Contexts: c}} }

func TestContextLines(t *testing.T) {
	second := chainedLine().ProcessContexts
	other, first := second, second
	other.PID, first.Window = 4712, 1
	profileOf := func(list ...stored.ProcessContexts) *pprof.Profile {
		p, m := new(pprof.Profile), stored.Metadata{Contexts: list}
		if err := m.Store(p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := profileOf(second, other, first)
	lines, err := contextLines(p, 4711)
	if err != nil || len(lines) != 2 || lines[0].Window != 1 || !reflect.DeepEqual(lines[1], chainedLine()) {
		t.Errorf("got %+v, %v", lines, err)
	}
	if lines, err := contextLines(p, 1); err == nil {
		t.Errorf("got %+v of a process that is not there", lines)
	}
	if lines, err := contextLines(profileOf(first, second, other, first), 4711); err == nil {
		t.Errorf("a window is there twice: got %+v", lines)
	}
}

func TestContextIdentities(t *testing.T) {
	l := chainedLine()
	if err := l.checkIdentities(990); err != nil {
		t.Fatal(err)
	}
	l.Check.Samples = 939 // one cannot be checked, as it was not placed
	if err := l.checkIdentities(990); err != nil {
		t.Error(err)
	}
	if err := l.checkIdentities(991); err == nil {
		t.Error("a sample is missing, and nobody noticed")
	}
	for what, change := range map[string]func(*contextLine){
		"linked twice":            func(l *contextLine) { l.Ambiguous = 938 },
		"more unique than there":  func(l *contextLine) { l.ByDepth[0] = 991 },
		"three but not one":       func(l *contextLine) { l.BySite[1] = 989 },
		"all but not three":       func(l *contextLine) { l.ByDepth[2] = 981 },
		"checked but not linked":  func(l *contextLine) { l.Check.Samples = 941 },
		"placed but not checked":  func(l *contextLine) { l.Check.Samples = 938 },
		"right but not checked":   func(l *contextLine) { l.Check.Right[0] = 941 },
		"three right but not one": func(l *contextLine) { l.Check.Right[1] = 931 },
		"all right but not three": func(l *contextLine) { l.Check.Right[2] = 921 },
	} {
		l := chainedLine()
		change(&l)
		if err := l.checkIdentities(990); err == nil {
			t.Errorf("%s was not noticed", what)
		}
	}
}

// The output of compare.
const compared = `Precision by samples: how well each of 3 windows predicts the next
recording, 3000 samples, 990 to 1010 in a window

         methods              edges             PCCT
windows    corr.  overlap    corr.  overlap    corr.  overlap
1, 2      0.9990    97.10   0.9000    90.00   0.8000    80.00
mean      0.9985    97.25        -    89.50   0.8125    81.50
1 more pair, in the means, too
corr.: correlation, of 1; overlap: of 100; mean: geometric
`

func TestLikeness(t *testing.T) {
	got, err := parseLikeness(compared)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 3 || got["methods"] != (likeness{0.9985, 97.25}) || got["PCCT"] != (likeness{0.8125, 81.5}) {
		t.Errorf("got %v", got)
	}
	if edges := got["edges"]; !math.IsNaN(edges.correlation) || edges.overlap != 89.5 {
		t.Errorf("got edges %v", edges)
	}
	r := contextRecording{alike: got}
	if r.likenessOf("methods").overlap != 97.25 || !math.IsNaN(r.likenessOf("contexts").correlation) {
		t.Error("what was not compared has a value, or what was has none")
	}
	for what, text := range map[string]string{
		"nothing":     "",
		"no means":    "     methods\nwindows corr. overlap\n1, 2 0.9 90\n",
		"half a mean": "     methods\nwindows corr. overlap\nmean 0.9\n",
		"no number":   "     methods\nwindows corr. overlap\nmean 0.9 many\n",
	} {
		if got, err := parseLikeness(text); err == nil {
			t.Errorf("%s: got %v", what, got)
		}
	}
}
