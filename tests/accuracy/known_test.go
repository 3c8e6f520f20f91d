package main

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/tests/events"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/stacks"
)

func TestPlanKnown(t *testing.T) {
	jdks := []jvm.JDK{{Version: 17, Release: "17.0.1"}, {Version: 25, Release: "25"}}
	seen := map[string]bool{}
	var short int
	for _, study := range []eventStudy{allocStudy, lockStudy, enterStudy, pauseStudy, faultStudy, valueStudy} {
		trials := study.trials(jdks, false)
		if n := trialsOf(t, "events-"+string(study), jdks); n == 0 || n != len(trials) {
			t.Errorf("%s: %d trials of %d", study, n, len(trials))
		}
		for _, trial := range trials {
			if name := trial.String(); seen[name] || !strings.HasPrefix(name, "events, "+string(study)) {
				t.Errorf("a second trial %q", name)
			}
			seen[trial.String()] = true
		}
		some := study.trials(jdks, true)
		short += len(some)
		for _, trial := range some {
			if trial.study == pauseStudy && trial.setting != "G1" || !seen[trial.String()] {
				t.Errorf("%v is in the short form", trial)
			}
		}
		one := trialsOf(t, "events-"+string(study), jdks, "-run", "^events, locks, threads 2, JDK 25$")
		if (one == 1) != (study == lockStudy) || one > 1 {
			t.Errorf("%s: %d trials", study, one)
		}
	}
	for _, name := range []string{
		"events, pauses, Shenandoah, threads 2, JDK 25", "events, values, every 97",
		"events, sites, threads 4, JDK 17.0.1",
	} {
		if !seen[name] {
			t.Errorf("no trial %q", name)
		}
	}
	if short != 5+1 { // values have two, enters none
		t.Errorf("%d trials in the short form", short)
	}
}

func TestKnownTables(t *testing.T) {
	results := []eventResult{{
		eventTrial{study: pauseStudy, setting: "Z", threads: 2},
		[]figure{{group: "stopped", unit: "ms", truth: 10, measured: 12, tolerance: 0.1, aim: true}},
	}}
	table := knownTable(results)
	if table.Rows[0][0] != "Z, threads 2" || table.Rows[0][1] != "stopped" {
		t.Errorf("table %+v", table)
	}
	if !knownOK(results) {
		t.Error("an aim that is missed is an error")
	}
	results[0].figures[0].aim = false
	if knownOK(results) {
		t.Error("a figure beyond its tolerance is none")
	}
}

// row is a row of one of the program's own threads in methods, innermost first.
func row(labels events.Labels, count int64, values []float64, methods ...string) events.Row {
	r := events.Row{Stack: stacks.Stack{Thread: events.Thread + "-0", Count: count}, Labels: labels, Values: values}
	for _, method := range methods {
		r.Frames = append(r.Frames, stacks.Frame{Function: method, Mapping: "[jit: hotspot]"})
	}
	return r
}

// missed returns the groups with a figure beyond its tolerance.
func missed(figures []figure) map[string]bool {
	groups := map[string]bool{}
	for _, f := range figures {
		if !f.ok() {
			groups[f.group] = true
		}
	}
	return groups
}

// A judgement is rows and the groups of figures that must be missed by them.
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

func TestFigure(t *testing.T) {
	for _, test := range []struct {
		f    figure
		used float64
		ok   bool
	}{
		{figure{truth: 100, measured: 100}, 0, true},
		{figure{truth: 100, measured: 97, tolerance: 6}, 0.5, true},
		{figure{truth: 100, measured: 106, tolerance: 6}, 1, true},
		{figure{truth: 100, measured: 112, tolerance: 6}, 2, false},
	} {
		if got := test.f.used(); got != test.used || test.f.ok() != test.ok {
			t.Errorf("%+v uses %v, ok %v", test.f, got, test.f.ok())
		}
	}
	if f := (figure{truth: 100, measured: 99}); f.ok() || f.used() < 1000 {
		t.Errorf("off by one without any tolerance: ok %v, uses %v", f.ok(), f.used())
	}
}

func TestWorst(t *testing.T) {
	got := worst([]figure{
		{group: "a", what: "1", truth: 10, measured: 10, tolerance: 1},
		{group: "b", what: "1", truth: 10, measured: 12, tolerance: 4},
		{group: "a", what: "2", truth: 10, measured: 13, tolerance: 1},
		{group: "a", what: "3", truth: 10, measured: 9, tolerance: 1},
	})
	if len(got) != 2 || got[0].what != "2" || got[1].group != "b" {
		t.Errorf("got %+v", got)
	}
	want := []string{"a: 2", "10", "13", "±1", "MISSED"}
	if cells := got[0].cells(); !slices.Equal(cells, want) {
		t.Errorf("cells %q, want %q", cells, want)
	}
	f := figure{group: "delay", unit: "ms", truth: 1.5, measured: 1.504, tolerance: 0.01}
	if cells := f.cells(); !slices.Equal(cells, []string{"delay", "1.50 ms", "1.50 ms", "±0.01 ms", "ok"}) {
		t.Errorf("cells %q", cells)
	}
}
