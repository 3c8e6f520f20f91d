package main

import (
	"math"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

func TestAgrees(t *testing.T) {
	for _, test := range []struct {
		r  result
		ok bool
	}{
		{result{truth: 100, recorded: 106, within: 4, tolerance: 2}, true},
		{result{truth: 100, recorded: 107, within: 4, tolerance: 2}, false},
		{result{truth: 100, recorded: 50, within: math.Inf(1)}, true},
		{result{truth: 100, recorded: 50, compared: true}, true},
	} {
		if test.r.agrees() != test.ok {
			t.Errorf("%+v", test.r)
		}
	}
}

// Where every wait was recorded, JFR's is the truth, but for those that began before probes were
// there. Spinning is none of JFR's.
func TestCompareWaits(t *testing.T) {
	began := time.Unix(1000, 0)
	jfr := waits{{began.Add(2 * time.Second), 80 * time.Millisecond},
		{began.Add(9 * time.Second), 20 * time.Millisecond}}
	recording := func(delay int64, total stored.Total) *profiler.Recording {
		p := &pprof.Profile{
			SampleType: []*pprof.ValueType{
				{Type: "acquisitions", Unit: "count"}, {Type: "contentions", Unit: "count"},
				{Type: "delay", Unit: "nanoseconds"}, {Type: "events", Unit: "count"},
			},
		}
		m := stored.Metadata{Totals: []stored.Total{total}}
		m.Events = &stored.EventAccount{Kind: profile.Locks}
		if err := m.Store(p); err != nil {
			t.Fatal(err)
		}
		for kind, of := range map[string]int64{"block": delay, "spin": 50_000_000} {
			p.Sample = append(p.Sample, &pprof.Sample{Value: []int64{1, 1, of, 1},
				Label: map[string][]string{"kind": {kind}}})
		}
		return &profiler.Recording{Kinds: map[string]*pprof.Profile{"lock": p}}
	}
	for _, c := range []struct {
		name                string
		recording           *profiler.Recording
		compared, agreement bool
	}{
		{"each one", recording(101_000_000, stored.Total{Sum: 151e6}), false, true},
		{"more than there were", recording(110_000_000, stored.Total{Sum: 160e6}), false, false},
		{"fewer", recording(20_000_000, stored.Total{Sum: 70e6}), false, false},
		{"fewer, and the beginning is missing", recording(20_000_000,
			stored.Total{Sum: 70e6, Missed: 1200 * time.Millisecond}), false, true},
		{"some were drawn", recording(300_000_000, stored.Total{Sum: 350e6, Within: 90e6}), true, true},
	} {
		r, err := compareWaits(truth{began: began, monitors: jfr}, c.recording)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if r.truth != 100 || r.compared != c.compared || r.agrees() != c.agreement {
			t.Errorf("%s: %+v", c.name, r)
		}
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 12.345: "12.3", 999.4: "999", 999.6: "1000", 154871: "154871",
		math.Inf(1): "unknown"} {
		if got := (result{}).number(v); got != want {
			t.Errorf("%v: %q, want %q", v, got, want)
		}
	}
}

// The page has a place for each table.
func TestMarkers(t *testing.T) {
	for _, name := range []string{"crosscheck", "crosscheck-controls"} {
		if _, err := report.Section("../../"+docs, name); err != nil {
			t.Error(err)
		}
	}
}
