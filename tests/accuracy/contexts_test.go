package main

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
)

func TestPlanContexts(t *testing.T) {
	jdk := jvm.JDK{Version: 17, Release: "17.0.1"}
	seen := map[string]bool{}
	for _, study := range []contextStudy{chainStudy, everyStudy, partialStudy, precisionStudy} {
		want := len(contextPrograms)
		if study != precisionStudy {
			want += len(contextVMPrograms)
		}
		trials, short := study.trials(jdk, false), study.trials(jdk, true)
		if len(trials) != want {
			t.Errorf("%s has %d trials", study, len(trials))
		}
		for _, trial := range trials {
			if !strings.HasPrefix(trial.String(), "contexts, ") ||
				!strings.HasSuffix(trial.String(), ", "+string(study)) {
				t.Errorf("a trial of %s is called %q", study, trial)
			}
			if !trial.vm && trial.jdk.Version != 17 {
				t.Errorf("%v is on JDK %d", trial, trial.jdk.Version)
			}
		}
		some := study.contexts(true)
		if (len(short) == 0) != (study == precisionStudy) || len(some.settings) != 1 ||
			some.length.whole() > 5*time.Second {
			t.Errorf("the short form of %s has %d trials with %d settings for %v", study, len(short),
				len(some.settings), some.length.whole())
		}
		for _, trial := range short {
			seen[trial.program] = true
		}
		both := []jvm.JDK{jdk, {Version: 25, Release: "25"}}
		if n := trialsOf(t, "contexts-"+string(study), both); n != want {
			t.Errorf("%s has %d trials of two JDKs", study, n)
		}
		if n := trialsOf(t, "contexts-"+string(study), both, "-run",
			"^contexts, .*, every$"); (n > 0) != (study == everyStudy) {
			t.Errorf("%d trials of %s", n, study)
		}
	}
	if len(seen) != 2 {
		t.Errorf("the short form has the programs %v", seen)
	}
}

func TestContextSettings(t *testing.T) {
	var frequencies []int
	for _, s := range precisionStudy.settings() {
		frequencies = append(frequencies, s.hz)
	}
	if got := across(frequencies,
		func(hz int) string { return (time.Second / time.Duration(hz)).String() }); got != "1ms / 2ms / 5ms / 10ms" {
		t.Errorf("intervals are %s", got)
	}
	for _, study := range []contextStudy{chainStudy, everyStudy, partialStudy} {
		for _, s := range study.settings() {
			if s.flags[len(s.flags)-1] != "--check-contexts" {
				t.Errorf("%s: %s is not checked", study, s.name)
			}
		}
	}
}

// counted is a window of 100 samples, of which this many were walked, and this many of the others
// are right.
func counted(walked uint64, right ...uint64) contextLine {
	return lineOf(profile.Contexts{
		Mode: profile.ContextChain, Walked: walked, Linked: 100 - walked, Nodes: 50, Shared: 5, Methods: 20,
		ByDepth: [3]uint64{70, 60, 50}, BySite: [3]uint64{90, 80, 70},
		Check: &profile.ContextCheck{Samples: 100 - walked, Right: [3]uint64(right)},
	})
}

// madeContexts is a synthetic section with one setting and two windows: a real program, and two of
// the reference guest.
func madeContexts() *contexts {
	result := func(program string, vm bool, windows ...contextLine) contextResult {
		return contextResult{contextTrial: contextTrial{program: program, vm: vm},
			recorded: []contextRecording{{windows: windows, java: 0.75}}}
	}
	return &contexts{
		study: chainStudy, settings: []contextSetting{{name: "999 Hz"}},
		length: contextLength{window: 10 * time.Second, windows: 2},
		results: []contextResult{
			result("Xalan", false, counted(20, 80, 70, 60), counted(0, 95, 90, 80)),
			result("recursive", true, counted(0, 100, 100, 100), counted(50, 49, 45, 10)),
			result("virtual", true, counted(0, 100, 60, 50), counted(50, 49, 43, 30)),
		},
	}
}

func TestContextTables(t *testing.T) {
	s := madeContexts()
	last := &s.results[0].recorded[0].windows[1]
	last.Nodes, last.ByDepth, last.BySite = 60, [3]uint64{71, 61, 50}, [3]uint64{91, 81, 70}
	tables := s.tables()
	var text bytes.Buffer
	for _, table := range tables {
		for _, row := range table.Rows {
			if len(row) != len(table.Header) {
				t.Errorf("%s: %q below %q", table.Marker, row, table.Header)
			}
		}
		if err := table.Print(&text); err != nil {
			t.Fatal(err)
		}
	}
	chain, aims, paper := tables[0], tables[1], tables[2]
	if len(chain.Rows) != 4 || len(aims.Rows) != 4 || len(paper.Rows) != 3+8 {
		t.Fatalf("got\n%s", text.String())
	}
	cells := func(row []string) string { return strings.Join(row, "; ") }
	for want, row := range map[string][]string{
		"Xalan; 999 Hz; 20.0 / 0.0; 100.0 / 95.0; 87.5 / 90.0; 75.0 / 80.0; 0.0 / 0.0; 0.0 / 0.0; 0.0 / 0.0; 90.0 / " +
			"90.0; 80.0 / 80.0; 75.0": chain.Rows[0],
		"mean of the reference guest; 999 Hz; 0.0 / 50.0; 100.0 / 98.0; 80.0 / 88.0; 75.0 / 40.0; 0.0 / 0.0; 0.0 / " +
			"0.0; 0.0 / 0.0; 80.0 / 94.0; 75.0 / 70.0; -": chain.Rows[3],
		"recursive; 999 Hz; 0.0 / 50.0; 100.0 / 98.0; 100.0 / 90.0; 100.0 / 20.0; 0.0 / 0.0; 0.0 / 0.0; 0.0 / 0.0; " +
			"100.0 / 95.0; 100.0 / 60.0; -": chain.Rows[1],
		// The first window's three levels are right in neither Xalan nor the mean of the guest, of
		// what was not walked.
		"999 Hz; 0 to 10 s; samples not walked; 2 of 2; 0 of 2; MISSED":                 aims.Rows[0],
		"999 Hz; 0 to 10 s; all samples; 2 of 2; 1 of 2; MISSED":                        aims.Rows[1],
		"999 Hz; 10 to 20 s; samples not walked; 2 of 2; 1 of 2; MISSED":                aims.Rows[2],
		"999 Hz; 10 to 20 s; all samples; 2 of 2; 2 of 2; MISSED":                       aims.Rows[3],
		"here; Xalan; 60; 5 (8.3 %); 20; 3.0; 71.0; 61.0; 91.0; 81.0; 75.0":             paper.Rows[0],
		"paper; compiler.compiler; 78264; 20184 (25.8 %); 1477; 53.0; 71.0; 52.5; ; ; ": paper.Rows[4],
	} {
		if cells(row) != want {
			t.Errorf("got  %s\nwant %s", cells(row), want)
		}
	}
	if entire := (contextAim{one: 6, three: 5, programs: 7}); !entire.reached() ||
		(contextAim{one: 4, three: 5, programs: 7}).reached() {
		t.Error("the aim is not five programs")
	}
}

func TestOtherContextTables(t *testing.T) {
	s := madeContexts()
	for _, study := range []contextStudy{everyStudy, partialStudy, precisionStudy} {
		s.study = study
		for i := range s.results {
			r := &s.results[i]
			r.iteration = 1500 * time.Microsecond
			r.recorded[0].fresh, r.recorded[0].frames = 2.25, 31.5
			r.recorded[0].alike = map[string]likeness{hotMethods: {0.99, 95}, partialCCT: {math.NaN(), 80}}
		}
		table := s.tables()[0]
		for _, row := range table.Rows {
			if len(row) != len(table.Header) {
				t.Errorf("%s: %q below %q", table.Marker, row, table.Header)
			}
		}
		want := map[contextStudy]string{
			everyStudy:     "Xalan; 999 Hz; 10.0; 97.2; 88.9; 77.8; 0.0; 0.0; 0.0; 90.0; 80.0; 75.0",
			partialStudy:   "Xalan; 999 Hz; 10.0; 97.2; 88.9; 77.8; 0.0; 2.2; 32; 75.0",
			precisionStudy: "Xalan; 1.5ms; 999 Hz; 100; 0.9900; 95.0; -; 80.0",
		}[study]
		if got := strings.Join(table.Rows[0], "; "); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestContextsOK(t *testing.T) {
	for what, test := range map[string]struct {
		line contextLine
		want bool
	}{
		"right":                   {counted(20, 76, 0, 0), true},
		"first callers wrong":     {counted(20, 75, 70, 60), false},
		"nothing but whole walks": {counted(100, 0, 0, 0), false},
	} {
		if contextsOK([]contextResult{{recorded: []contextRecording{{windows: []contextLine{test.line}}}}}) != test.want {
			t.Errorf("%s: %v", what, !test.want)
		}
	}
	shallow := counted(100, 0, 0, 0)
	shallow.Mode = profile.ContextPartial
	if !contextsOK([]contextResult{{recorded: []contextRecording{{windows: []contextLine{shallow}}}}}) {
		t.Error("a partial walk must not go to the root")
	}
	unchecked := counted(20, 0, 0, 0)
	unchecked.Check = nil
	if !contextsOK([]contextResult{{recorded: []contextRecording{{windows: []contextLine{unchecked}}}}}) {
		t.Error("what was not checked is wrong")
	}
}

func TestRoundedIteration(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"52µs": 52300 * time.Nanosecond, "250ms": 254 * time.Millisecond, "2.1s": 2100 * time.Millisecond,
		"500ns": 500 * time.Nanosecond, "0s": 0,
	} {
		if got := roundedIteration(&contextResult{iteration: d}); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}
