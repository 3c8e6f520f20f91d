package main

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
)

func TestEventCostOf(t *testing.T) {
	account := eventAccount{events: 10, lost: 1, hits: 40, cost: 2 * time.Microsecond, rested: 1}
	watched := func(kind string, cpu, wall time.Duration) harness.Turn[string, eventSegment] {
		return harness.Turn[string, eventSegment]{Kind: kind, Sample: eventSegment{usage: usage{cpu, wall},
			account: account, agent: 5}}
	}
	off := func(cpu, wall time.Duration) eventSegment { return eventSegment{usage: usage{cpu, wall}} }
	turns := &harness.Turns[string, eventSegment]{
		Off: []eventSegment{off(100, 1000), off(120, 1000), off(100, 1400), off(160, 1000), off(60, 1000)},
		On: []harness.Turn[string, eventSegment]{watched("alloc", 110, 1200), watched("lock", 500, 900),
			watched("alloc", 130, 600), watched("lock", 500, 900)},
	}
	c := eventCostOf(turns, "Xalan", "alloc")
	for name, tt := range map[string]struct{ got, want []float64 }{
		"cpu":     {c.ratios.cpu, []float64{1, 1}},
		"wall":    {c.ratios.wall, []float64{1.2, 0.5}},
		"control": {c.ratios.control, []float64{1.2, 2}},
	} {
		if !slices.EqualFunc(tt.got, tt.want, func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }) {
			t.Errorf("%s is %v, want %v", name, tt.got, tt.want)
		}
	}
	if c.guest != "Xalan" || c.kind != "alloc" || c.cpu.Median != 1 || math.Abs(c.wall.Median-0.85) > 1e-9 ||
		math.Abs(c.control.Median-1.6) > 1e-9 {
		t.Errorf("got %+v", c)
	}
	if want := (eventAccount{events: 20, lost: 2, hits: 80, cost: 4 * time.Microsecond, rested: 2}); c.account != want {
		t.Errorf("the accounts add up to %+v, want %+v", c.account, want)
	}
	if c.recordings != 2 || c.used != (usage{240, 1800}) || c.agent != 10 {
		t.Errorf("%d recordings, of %v of the guest and %v of the agent", c.recordings, c.used, c.agent)
	}
	if c.nanosPerEvent() != 200 || c.said() != 4000.0/240 || math.Abs(c.perSecond(18)-1e7) > 1e-3 {
		t.Errorf("%v ns an event, %v of CPU time, %v a second", c.nanosPerEvent(), c.said(), c.perSecond(18))
	}
	last := eventCostOf(turns, "Xalan", "lock")
	if len(last.ratios.cpu) != 2 || len(last.ratios.control) != 1 {
		t.Errorf("the last segment has a control: %+v", last.ratios)
	}
}

// What is written is what is read.
func TestReadEventAccount(t *testing.T) {
	counts := profile.EventCounts{
		Attempted: 12, Delivered: 11, Folded: 7, Hits: 300, Cost: 1500 * time.Microsecond,
		Dropped: map[string]uint64{"ring_full": 1}, Discarded: map[string]uint64{"malformed": 4},
	}
	for name, tt := range map[string]struct {
		counts profile.EventCounts
		notes  []string
		want   eventAccount
	}{
		"nothing": {want: eventAccount{events: 7}},
		"with losses": {counts: counts, want: eventAccount{events: 7, lost: 5, hits: 300,
			cost: 1500 * time.Microsecond}},
		"rested": {
			notes: []string{"values at f were not recorded all the time: f is hit 118,203 times a second"},
			want:  eventAccount{events: 7, rested: 1},
		},
	} {
		for _, kind := range []profile.EventKind{profile.Allocations, profile.Faults} {
			p, err := sink.Pprof(&profile.Profile{EventCounts: tt.counts, Comments: tt.notes,
				Processes: []*profile.Process{{
					Comm: "java", PID: 1, Events: []*profile.Events{{Kind: kind,
						Rows: []profile.EventRow{{Events: 7}}}},
				}}}, sink.OfEvents(kind))
			if err != nil {
				t.Fatal(err)
			}
			if got, err := readEventAccount(p); err != nil || got != tt.want {
				t.Errorf("%s: got %+v, %v of %q, want %+v", name, got, err, p.Comments, tt.want)
			}
		}
	}
	time := &profile.Profile{Processes: []*profile.Process{{Comm: "java", PID: 1}}}
	mixed := &profile.Profile{Processes: []*profile.Process{{Comm: "java", PID: 1,
		Events: []*profile.Events{{Kind: profile.Allocations}, {Kind: profile.Locks}}}}}
	for _, p := range []*profile.Profile{time, mixed} {
		converted, err := sink.Pprof(p, sink.ContentOf(p))
		if err != nil {
			t.Fatal(err)
		}
		if a, err := readEventAccount(converted); err == nil {
			t.Errorf("%q was read as %+v", converted.Comments, a)
		}
	}
	if a, err := readEventAccount(&pprof.Profile{Comments: []string{"events: 7 alloc, 0 lost"}}); err == nil {
		t.Errorf("a sentence was read as %+v", a)
	}
}

func TestSuiteCosts(t *testing.T) {
	of := func(guest, kind string, cpu ...float64) eventCost {
		return eventCost{guest: guest, kind: kind, ratios: eventRatios{cpu: cpu, wall: cpu, control: cpu}}
	}
	together := suiteCosts([]eventCost{
		of("Xalan", "alloc", 1, 2), of("Xalan", "lock", 5), of("H2", "alloc", 9), of("Locking", "lock", 7),
	})
	if len(together) != 1 || together[0].kind != "alloc" || together[0].guest != wholeSuite {
		t.Fatalf("got %+v", together)
	}
	for name, r := range map[string]harness.Ratio{"cpu": together[0].cpu, "wall": together[0].wall,
		"control": together[0].control} {
		if r.Median != 2 {
			t.Errorf("%s is %v", name, r)
		}
	}
}

func TestEventTables(t *testing.T) {
	dear := eventCost{guest: "Xalan", kind: "alloc", cpu: harness.Ratio{Median: 1.05, Low: 1.02, High: 1.09},
		recordings: 3}
	text := func(judged bool) string {
		var b strings.Builder
		for _, row := range eventTable([]eventCost{dear}, judged).Rows {
			b.WriteString(strings.Join(row, " ") + "\n")
		}
		return b.String()
	}
	if got := text(true); !strings.Contains(got, "MISSED") || strings.Count(got, "\n") != 1 {
		t.Errorf("judged: got %q", got)
	}
	if got := text(false); strings.Contains(got, "MISSED") {
		t.Errorf("not judged: got %q", got)
	}
	for _, table := range []struct{ header, cells int }{
		{len(eventTable([]eventCost{dear}, true).Header), len(eventTable([]eventCost{dear}, true).Rows[0])},
		{len(eventOwnTable([]eventCost{dear}).Header), len(eventOwnTable([]eventCost{dear}).Rows[0])},
	} {
		if table.header != table.cells {
			t.Errorf("%d cells below %d headers", table.cells, table.header)
		}
	}
}
