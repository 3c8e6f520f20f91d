package profiler

import (
	"testing"
	"time"
)

func TestStats(t *testing.T) {
	stats, err := parseStats([]byte(`{
		"samples_attempted": 10, "samples_delivered": 7, "samples_dropped": {"ring_full": 2, "other": 1},
		"samples_folded": 6, "samples_discarded": {"malformed": 1}, "truncated": {"depth": 1},
		"bpf_ns_total": 20000, "agent_cpu_seconds": 0.25, "something_new": true,
		"calls": {"Delivered": 5, "Costs": {"page": 400, "hotspot": 600}, "Rates": {"page": {"Hz": 100, "Stride": 7, "Samples": 32}}},
		"events": {"Kinds": ["alloc"], "Attempted": 12, "Delivered": 9, "Dropped": {"busy": 3}, "Cost": 60000}
	}`))
	if err != nil {
		t.Fatal(err)
	}
	if stats.BPFTime != 20*time.Microsecond || stats.CPUSeconds != 0.25 || stats.Truncated["depth"] != 1 ||
		stats.Lost() != 4 {
		t.Errorf("got %+v", stats)
	}
	if c := stats.Calls; c == nil || c.Delivered != 5 || c.Cost() != time.Microsecond ||
		c.Rates["page"] != (CallRate{100, 7, 32}) {
		t.Errorf("got calls %+v", c)
	}
	if e := stats.Events; e == nil || e.Delivered != 9 || e.Dropped["busy"] != 3 || len(e.Kinds) != 1 ||
		e.Kinds[0] != "alloc" {
		t.Errorf("got events %+v", e)
	}
	if got := stats.LostEvents() - (Stats{}).LostEvents(); got != 3 {
		t.Errorf("%d events are lost", got)
	}
	if got := stats.EventCost(); got != 5*time.Microsecond {
		t.Errorf("an event costs %v", got)
	}
	if got := (Stats{Events: &EventStats{Hits: 7}}).EventCost() + (Stats{}).EventCost(); got != 0 {
		t.Errorf("no event costs %v", got)
	}
	if _, err := parseStats([]byte("{")); err == nil {
		t.Error("parsed half a file")
	}
}

func TestIdentities(t *testing.T) {
	whole := Stats{Attempted: 3, Delivered: 2, Dropped: map[string]uint64{"ring_full": 1}, Folded: 2}
	calls := func(s *Stats) *CallStats {
		s.Calls = &CallStats{Attempted: 5, Delivered: 4, Dropped: map[string]uint64{"ring_full": 1}, Folded: 3,
			Discarded: map[string]uint64{"stale": 1}}
		return s.Calls
	}
	events := func(s *Stats) *EventStats {
		s.Events = &EventStats{Attempted: 6, Delivered: 4, Dropped: map[string]uint64{"busy": 2}, Folded: 3,
			Discarded: map[string]uint64{"no_window": 1}}
		return s.Events
	}
	for name, change := range map[string]func(*Stats){
		"attempted": func(s *Stats) { s.Attempted++ },
		"delivered": func(s *Stats) { s.Delivered++ },
		"dropped":   func(s *Stats) { s.Dropped = nil },
		"folded":    func(s *Stats) { s.Folded-- },

		"calls attempted": func(s *Stats) { calls(s).Attempted++ },
		"calls delivered": func(s *Stats) { calls(s).Delivered++ },
		"calls dropped":   func(s *Stats) { calls(s).Dropped = nil },
		"calls folded":    func(s *Stats) { calls(s).Folded-- },

		"events attempted": func(s *Stats) { events(s).Attempted++ },
		"events delivered": func(s *Stats) { events(s).Delivered++ },
		"events dropped":   func(s *Stats) { events(s).Dropped["busy"]++ },
		"events folded":    func(s *Stats) { events(s).Folded-- },
	} {
		t.Run(name, func(t *testing.T) {
			if err := whole.CheckIdentities(); err != nil {
				t.Fatal(err)
			}
			sampled := whole
			calls(&sampled)
			events(&sampled)
			if err := sampled.CheckIdentities(); err != nil {
				t.Fatal(err)
			}
			changed := whole
			change(&changed)
			if err := changed.CheckIdentities(); err == nil {
				t.Error("one sample's difference was not noticed")
			}
		})
	}
}
