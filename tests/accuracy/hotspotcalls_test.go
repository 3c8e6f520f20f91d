package main

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
)

func TestPlanHotspotCalls(t *testing.T) {
	old, recent := jvm.JDK{Version: 17, Release: "17.0.1"}, jvm.JDK{Version: 25, Release: "25.0.1"}
	for _, tt := range []struct {
		args []string
		jdks []jvm.JDK
		want int
	}{
		{jdks: []jvm.JDK{old, recent}, want: 2 * (len(hotspotPrograms) + len(newerPrograms))},
		{jdks: []jvm.JDK{old}, want: 2 * len(hotspotPrograms)},
		{args: []string{"-short"}, jdks: []jvm.JDK{old, recent}, want: 1},
		{args: []string{"-run", "calls, Jython, hotspot, inlining, JDK 17"}, jdks: []jvm.JDK{old, recent}, want: 1},
		{args: []string{"-run", "Plain"}, jdks: []jvm.JDK{old, recent}},
	} {
		if n := trialsOf(t, "hotspot-calls", tt.jdks, tt.args...); n != tt.want {
			t.Errorf("%v: got %d, want %d trials", tt.args, n, tt.want)
		}
	}
}

// A recording that found b where a calls c half of the time, in the end of two callees only.
func TestCompareRecording(t *testing.T) {
	r := hotspotRecording{length: time.Second, graphs: map[string]hotspotGraphs{physical: {
		found: javaCalls(map[string]float64{"a 1 b": 30, "a 2 c": 30, "x 1 y": 20}),
		timer: javaCalls(map[string]float64{"a b": 90, "a c": 10}),
	}}}
	truth := javaCalls(map[string]float64{"a 1 b": 1, "a 3 c": 1})
	got := r.compare(hotspotTrial{}, physical, truth, map[string]bool{"b": true, "c": true})
	if got.found != 100 || got.sites != 50 || got.callees != 100 || got.timer != 60 || got.bound != 100 ||
		got.covered != 0.75 || got.absent != 0 {
		t.Errorf("got %+v", got)
	}
	if whole := r.compare(hotspotTrial{}, physical, truth, nil); whole.absent != 25 || whole.covered != 1 ||
		whole.found != 75 || !whole.better() {
		t.Errorf("got %+v", whole)
	}
}

func TestHotspotCallsTable(t *testing.T) {
	jdk := jvm.JDK{Release: "17.0.1"}
	result := func(program, kind string, length time.Duration, timer, found float64) hotspotResult {
		return hotspotResult{hotspotTrial: hotspotTrial{program: program, jdk: jdk}, kind: kind, length: length,
			timer: timer, found: found, covered: 1}
	}
	results := []hotspotResult{
		result("P", physical, time.Second, 60, 80), result("P", physical, time.Minute, 62, 90),
		result("P", logical, time.Second, 60, 70), result("P", logical, time.Minute, 62, 72),
		result("Q", physical, time.Second, 40, 80), result("Q", physical, time.Minute, 42, 84),
		result("Q", logical, time.Second, 71, 70), result("Q", logical, time.Minute, 71, 72),
	}
	got := map[string][]string{}
	for _, row := range hotspotTable(results).Rows {
		got[row[0]+" "+row[3]] = append(row[4:8:8], row[len(row)-1])
	}
	want := map[string][]string{
		"P physical":    {"60", "80", "62", "90", "ok"},
		"P logical":     {"60", "70", "62", "72", "ok"},
		"Q physical":    {"40", "80", "42", "84", "ok"},
		"Q logical":     {"71", "70", "71", "72", "MISSED"},
		"mean physical": {"50", "80", "52", "87", "aim 85: ok"},
		"mean logical":  {"66", "70", "66", "72", "aim 75: MISSED"},
	}
	if !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if !hotspotOK(results) {
		t.Error("a logical graph that misses its aim is an error")
	}
	results[0].found = 59
	if !hotspotOK(results) {
		t.Error("a short recording that misses its aim is an error")
	}
	results[1].found = 59
	if hotspotOK(results) {
		t.Error("a physical graph that is worse than the timer's is none")
	}
}

// Programs whose code is not C2's have an aim each.
func TestHotspotPhases(t *testing.T) {
	jdk := jvm.JDK{Version: 17, Release: "17.0.1"}
	s := hotspotPhases([]jvm.JDK{jdk})
	var results []hotspotResult
	if len(s.trials) != 2*len(phasePrograms) {
		t.Fatalf("trials %v", s.trials)
	}
	for _, trial := range s.trials[:2] {
		results = append(results, hotspotResult{hotspotTrial: trial, kind: logical, length: 10 * time.Second, timer: 20,
			found: 90, covered: 1})
	}
	rows := hotspotTable(results).Rows
	if len(rows) != 2 {
		t.Fatalf("rows %v", rows)
	}
	for i, want := range []string{"aim 95: MISSED", "aim 80: ok"} {
		if got := rows[i][len(rows[i])-1]; got != want {
			t.Errorf("%v: %q, want %q", s.trials[i], got, want)
		}
	}
}
