package profiler

import (
	"encoding/json"
	"fmt"
	"time"
)

// Stats are the agent's own counters of one recording, as its flag --stats writes them.
type Stats struct {
	Attempted   uint64            `json:"samples_attempted"`
	Delivered   uint64            `json:"samples_delivered"`
	Dropped     map[string]uint64 `json:"samples_dropped"` // by cause
	Folded      uint64            `json:"samples_folded"`
	Discarded   map[string]uint64 `json:"samples_discarded"` // by cause
	Truncated   map[string]uint64 `json:"truncated"`         // by reason
	Stale       uint64            `json:"stale"`             // frames
	Unknown     uint64            `json:"unknown"`           // frames
	JavaSamples uint64            `json:"java_samples"`      // with at least one Java frame
	JavaFrames  uint64            `json:"java_frames"`       // in all of them

	BPFTime     time.Duration `json:"bpf_ns_total"` // in the sampling program, all samples
	BPFJavaTime time.Duration `json:"bpf_ns_java"`  // of JavaSamples alone
	RingBytes   uint64        `json:"ring_bytes"`

	CPUSeconds float64 `json:"agent_cpu_seconds"`
	RSSBytes   uint64  `json:"agent_rss_bytes"` // the most it ever was
	// FirstSymbolised is when the first Java frame had its name, after the agent's start.
	FirstSymbolised float64 `json:"first_symbolised_seconds"`

	Calls *CallStats `json:"calls"` // nil if no calls were sampled
}

// CallStats are the agent's counters of sampled calls.
type CallStats struct {
	Attempted, Delivered, Dropped, Folded uint64
	Discarded                             map[string]uint64 // by cause
	Bursts                                uint64

	GuestTime time.Duration            // CPU time of the guests whose calls are sampled
	Costs     map[string]time.Duration // CPU time of theirs that sampling took, by engine, as the agent reckons
	Rates     map[string]CallRate      // how much was sampled at the end, by engine
}

// A CallRate is how much of a guest's calls is sampled.
type CallRate struct {
	Hz, Stride, Samples int
}

func parseStats(text []byte) (Stats, error) {
	var stats Stats
	if err := json.Unmarshal(text, &stats); err != nil {
		return Stats{}, fmt.Errorf("parse the agent's counters: %w", err)
	}
	return stats, nil
}

// CheckIdentities returns an error unless every sample that was attempted is accounted for.
func (s Stats) CheckIdentities() error {
	if s.Attempted != s.Delivered+sum(s.Dropped) {
		return fmt.Errorf("%d samples attempted, but %d delivered and %d dropped", s.Attempted, s.Delivered, sum(s.Dropped))
	}
	if s.Delivered != s.Folded+sum(s.Discarded) {
		return fmt.Errorf("%d samples delivered, but %d folded and %d discarded", s.Delivered, s.Folded, sum(s.Discarded))
	}
	if s.Calls != nil {
		return s.Calls.checkIdentities()
	}
	return nil
}

func (s *CallStats) checkIdentities() error {
	if s.Attempted != s.Delivered+s.Dropped {
		return fmt.Errorf("%d calls attempted, but %d delivered and %d dropped", s.Attempted, s.Delivered, s.Dropped)
	}
	if s.Delivered != s.Folded+sum(s.Discarded) {
		return fmt.Errorf("%d calls delivered, but %d folded and %d discarded", s.Delivered, s.Folded, sum(s.Discarded))
	}
	return nil
}

// Lost returns the samples that are in no stack.
func (s Stats) Lost() uint64 { return sum(s.Dropped) + sum(s.Discarded) }

func sum(samples map[string]uint64) uint64 {
	var sum uint64
	for _, n := range samples {
		sum += n
	}
	return sum
}

// Cost is the CPU time that all engines took of guests, as the agent reckons.
func (s *CallStats) Cost() (sum time.Duration) {
	for _, cost := range s.Costs {
		sum += cost
	}
	return sum
}
