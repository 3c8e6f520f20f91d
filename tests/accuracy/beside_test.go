package main

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/jfr"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
)

func TestPlanBeside(t *testing.T) {
	jdks := []jvm.JDK{{Version: 17, Release: "17.0.1"}, {Version: 25, Release: "25"}}
	times := map[string]int{}
	for _, trial := range besideTrials(jdks, false) {
		times[trial.String()]++
		if trial.contender == jfrCPUTime && trial.jdk.Version < 25 {
			t.Errorf("%v: that JDK does not have these events", trial)
		}
	}
	for _, name := range []string{
		"beside, Siblings, default, vmprof-agent, JDK 17.0.1", "beside, Siblings, debug info, async-profiler, JDK 25",
		"beside, Natives, default, JFR, CPUTimeSample, JDK 25",
		"beside, Siblings, default, async-profiler, loaded at the JVM's start, JDK 25",
	} {
		if times[name] != besideRounds {
			t.Errorf("%s runs %d times", name, times[name])
		}
	}
	// One after the other, then all again.
	first := harness.Chosen(besideTrials(jdks, false),
		harness.Choice{Run: regexp.MustCompile("^beside, Exceptions, default, .*, JDK 17")})
	if half := len(first) / 2; half != 3 || !reflect.DeepEqual(first[:half], first[half:]) {
		t.Errorf("%v", first)
	}
	short := besideTrials(jdks, true)
	if len(short) != 2 || short[0].contender != thisAgent || short[1].contender != jfrExecution ||
		short[0].jdk != jdks[0] {
		t.Errorf("the short form has %v", short)
	}
}

func TestTallyBeside(t *testing.T) {
	truth := guests.Truth{
		CPU: 100 * besidePeriod,
		Claims: []guests.Claim{
			{Measure: guests.Self, Name: "g.S.a", CPU: 60 * besidePeriod},
			{Measure: guests.Total, Name: "g.S.outerA", CPU: 60 * besidePeriod},
			{Measure: guests.Self, Name: "g.S.b", CPU: 40 * besidePeriod},
			{Measure: guests.Total, Name: "g.S.outerB", CPU: 40 * besidePeriod},
		},
		Leaves: []guests.Leaf{{Outer: "g.S.outerA", Inner: "g.S.a"}, {Outer: "g.S.outerB", Inner: "g.S.b"}},
	}
	sample := func(count int64, vague bool, methods ...string) besideSample {
		slices.Reverse(methods)
		return besideSample{methods: methods, vague: vague, count: count}
	}
	tally := tallyBeside(truth, []besideSample{
		sample(20, false, "g.S.outerA", "g.S.pass", "g.S.a"),
		sample(3, false, "g.S.outerA", "g.S.pass", "g.S.a", "g.S.keep"),
		sample(7, true, "g.S.outerA", "g.S.pass", "g.S.a"), // a, or inlined in a: this must be right
		sample(10, false, "g.S.outerA", "g.S.pass", "g.S.b"),
		sample(15, true, "g.S.outerA", "g.S.pass"),
		sample(5, true, "g.S.outerA", "g.S.pass", "g.S.b"), // in b it was not
		sample(30, false, "g.S.outerB", "g.S.pass", "g.S.b"),
		sample(8, false, "g.S.outerB", "g.S.pass"),
		sample(1, false, "g.Kind.once"),
		{count: 1},
	})
	if tally.samples != 100 || tally.right != 60 || tally.caller != 23 || tally.wrong != 15 || tally.nameless != 1 ||
		tally.due() != 100 {
		t.Errorf("got %+v", tally)
	}
	const tiny = 1e-9
	if got := largest(tally.off(guests.Self)); got < -0.4-tiny || got > -0.4+tiny { // a has 20 of 60
		t.Errorf("the innermost methods are off by %v", got)
	}
	if got := largest(tally.off(guests.Total)); got < -0.02-tiny || got > -0.02+tiny { // outerB has 38 of 40
		t.Errorf("the outermost methods are off by %v", got)
	}
	if tally.accurate() {
		t.Error("15 % of names are wrong, which is accurate")
	}

	var results []besideResult
	trial := besideTrial{program: guests.Siblings(), jdk: jvm.JDK{Release: "17.0.1"}, contender: thisAgent}
	results = addBeside(results, trial, tally)
	results = addBeside(results, trial, tally)
	trial.contender = asyncCPU
	results = addBeside(results, trial, tally)
	table := besideTable(results)
	want := "Siblings, 17.0.1, no, vmprof-agent, 200, 100 %, -2.0, -40.0, 60.0 %, 23.0 %, 15.0 %, 1.0 % MISSED"
	if got := strings.Join(table.Rows[0], ", "); got != want || len(table.Rows) != 2 ||
		len(table.Rows[0]) != len(table.Header) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := table.Rows[1]; strings.Contains(got[len(got)-1], "MISSED") || besideOK(results) {
		t.Error("the agent is judged, and nobody else")
	}
}

// Guests without known leaves below a method have no such columns.
func TestTallyBesideWithoutLeaves(t *testing.T) {
	truth := guests.Truth{CPU: 100 * besidePeriod, Claims: []guests.Claim{{Measure: guests.Total, Name: "g.N.read",
		CPU: 100 * besidePeriod}}}
	tally := tallyBeside(truth, []besideSample{{methods: []string{"g.N.read"}, count: 100}})
	row := besideTable([]besideResult{{besideTrial{contender: thisAgent}, tally}}).Rows[0]
	if !tally.accurate() || !slices.Equal(row[6:], []string{"+0.0", "", "", "", "", "0.0 %"}) {
		t.Errorf("got %q of %+v", row, tally)
	}
}

func TestBesideSamples(t *testing.T) {
	s := stack(3, "g.S.outer", "g.S.pass", "[inlined in g.S.pass]")
	s.Frames[0].Mapping = "[jit:HotSpot]" // the mapping of its method
	s.Frames = slices.Insert(s.Frames, 0, stack(1, "memcpy").Frames[0])
	s.Frames[0].Mapping = "libc.so.6"
	want := besideSample{methods: []string{"g.S.pass", "g.S.outer", entry}, vague: true, count: 3}
	if got := ofAgent(s); !slices.Equal(got.methods, want.methods) || got.vague != want.vague ||
		got.count != want.count {
		t.Errorf("got %+v, want %+v", got, want)
	}
	got := ofEvent(jfr.Event{Stack: []jfr.Frame{{Method: "memcpy", Native: true}, {Method: "g.S.pass", Inlined: true},
		{Method: "g.S.outer"}}})
	if !slices.Equal(got.methods, []string{"g.S.pass", "g.S.outer"}) || got.vague || got.count != 1 {
		t.Errorf("got %+v", got)
	}
}
