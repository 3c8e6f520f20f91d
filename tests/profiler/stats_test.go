package profiler

import (
	"testing"
	"time"
)

func TestStats(t *testing.T) {
	stats, err := parseStats([]byte(`{
		"samples_attempted": 10, "samples_delivered": 7, "samples_dropped": {"ring_full": 2, "other": 1},
		"samples_folded": 6, "samples_discarded": {"malformed": 1}, "truncated": {"depth": 1},
		"bpf_ns_total": 20000, "agent_cpu_seconds": 0.25, "something_new": true
	}`))
	if err != nil {
		t.Fatal(err)
	}
	if stats.BPFTime != 20*time.Microsecond || stats.CPUSeconds != 0.25 || stats.Truncated["depth"] != 1 || stats.Lost() != 4 {
		t.Errorf("got %+v", stats)
	}
	if err := stats.CheckIdentities(); err != nil {
		t.Error(err)
	}
	if _, err := parseStats([]byte("{")); err == nil {
		t.Error("parsed half a file")
	}
}

func TestIdentities(t *testing.T) {
	whole := Stats{Attempted: 3, Delivered: 2, Dropped: map[string]uint64{"ring_full": 1}, Folded: 2}
	for name, change := range map[string]func(*Stats){
		"attempted": func(s *Stats) { s.Attempted++ },
		"delivered": func(s *Stats) { s.Delivered++ },
		"dropped":   func(s *Stats) { s.Dropped = nil },
		"folded":    func(s *Stats) { s.Folded-- },
	} {
		t.Run(name, func(t *testing.T) {
			if err := whole.CheckIdentities(); err != nil {
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
