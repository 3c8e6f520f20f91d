package main

import (
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/tests/events"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/stacks"
)

func TestPlanKnown(t *testing.T) {
	jdks := []jvm.JDK{{Version: 17, Release: "17.0.1"}, {Version: 25, Release: "25"}}
	everything := options{run: regexp.MustCompile("")}
	seen := map[string]bool{}
	for i, s := range planKnown(jdks, everything) {
		section := s.(*knownEvents)
		if section.study != eventStudies[i] || len(section.trials) == 0 {
			t.Errorf("section %d: %+v", i, section)
		}
		for _, trial := range section.trials {
			if name := trial.String(); seen[name] || !strings.HasPrefix(name, "events, "+string(section.study)) {
				t.Errorf("a second trial %q", name)
			}
			seen[trial.String()] = true
		}
		again := planKnown(jdks, everything)[i]
		if !reflect.DeepEqual(again, s) { // what entire depends on
			t.Errorf("another plan: %+v", again)
		}
	}
	for _, name := range []string{
		"events, pauses, Shenandoah, threads 2, JDK 25", "events, values, every 97", "events, sites, threads 4, JDK 17.0.1",
	} {
		if !seen[name] {
			t.Errorf("no trial %q", name)
		}
	}
	var short int
	for _, s := range planKnown(jdks, options{run: everything.run, short: true}) {
		short += len(s.(*knownEvents).trials)
		for _, trial := range s.(*knownEvents).trials {
			if trial.study == pauseStudy && trial.setting != "G1" || !seen[trial.String()] {
				t.Errorf("%v is in the short form", trial)
			}
		}
	}
	if short != len(eventStudies)+1 { // values have two
		t.Errorf("%d trials in the short form", short)
	}
	one := planKnown(jdks, options{run: regexp.MustCompile("^events, locks, threads 2, JDK 25$")})
	if n := len(one[1].(*knownEvents).trials); n != 1 || len(one[0].(*knownEvents).trials) != 0 {
		t.Errorf("%d trials", n)
	}
}

func TestKnownTables(t *testing.T) {
	s := &knownEvents{study: pauseStudy, results: []eventResult{{
		eventTrial{study: pauseStudy, setting: "Z", threads: 2},
		[]figure{{group: "stopped", unit: "ms", truth: 10, measured: 12, tolerance: 0.1, aim: true}},
	}}}
	table := s.tables()[0]
	if table.name != "events-pauses" || table.Rows[0][0] != "Z, threads 2" || table.Rows[0][1] != "stopped" {
		t.Errorf("table %+v", table)
	}
	if !s.ok() {
		t.Error("an aim that is missed is an error")
	}
	s.results[0].figures[0].aim = false
	if s.ok() {
		t.Error("a figure beyond its tolerance is none")
	}
}

// row is one of a program's own thread in methods, innermost first.
func row(labels events.Labels, count int64, values []float64, methods ...string) events.Row {
	r := events.Row{Stack: stacks.Stack{Thread: events.Thread + "-0", Count: count}, Labels: labels, Values: values}
	for _, method := range methods {
		r.Frames = append(r.Frames, stacks.Frame{Function: method, Mapping: "[jit: hotspot]"})
	}
	return r
}

// missed returns the groups with a figure that is beyond its tolerance.
func missed(figures []figure) map[string]bool {
	groups := map[string]bool{}
	for _, f := range figures {
		if !f.ok() {
			groups[f.group] = true
		}
	}
	return groups
}

// A judgement is rows and which groups of figures must be missed by them.
type judgement struct {
	name  string
	rows  []events.Row
	wrong []string
}

func (j judgement) check(t *testing.T, figures []figure) {
	t.Helper()
	want := map[string]bool{}
	for _, group := range j.wrong {
		want[group] = true
	}
	if got := missed(figures); !reflect.DeepEqual(got, want) {
		t.Errorf("%s: missed %v, want %v: %+v", j.name, got, want, figures)
	}
}
