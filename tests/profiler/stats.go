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
	BPFJavaTime time.Duration `json:"bpf_ns_java"`  // time of JavaSamples alone
	RingBytes   uint64        `json:"ring_bytes"`

	CPUSeconds float64 `json:"agent_cpu_seconds"`
	RSSBytes   uint64  `json:"agent_rss_bytes"` // the most it ever was
	// FirstSymbolised is when the first Java frame had its name, after the agent's start.
	FirstSymbolised float64 `json:"first_symbolised_seconds"`

	Calls  *CallStats  `json:"calls"`  // nil if no calls were sampled
	Events *EventStats `json:"events"` // nil if no events were recorded
}

// EventStats are the agent's counters of events.
type EventStats struct {
	Kinds                        []string
	Attempted, Delivered, Folded uint64
	Dropped, Discarded           map[string]uint64 // by cause
	Hits                         uint64            // executions of probes
	// Waits and WaitsThinned count the times that threads came back to a CPU, and those of them
	// that were not drawn for a record.
	Waits, WaitsThinned uint64
	Cost                time.Duration // CPU time of guests that they took, as the agent reckons
}

// CallStats are the agent's counters of sampled calls.
type CallStats struct {
	Attempted, Delivered, Folded uint64
	Dropped, Discarded           map[string]uint64 // by cause
	Bursts                       uint64

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

// CheckIdentities returns an error unless everything that was attempted is accounted for: samples,
// calls and events.
func (s Stats) CheckIdentities() error {
	accounts := []account{{"samples", s.Attempted, s.Delivered, sum(s.Dropped), s.Folded, sum(s.Discarded)}}
	if c := s.Calls; c != nil {
		accounts = append(accounts, account{"calls", c.Attempted, c.Delivered, sum(c.Dropped), c.Folded,
			sum(c.Discarded)})
	}
	if e := s.Events; e != nil {
		accounts = append(accounts, account{"events", e.Attempted, e.Delivered, sum(e.Dropped), e.Folded,
			sum(e.Discarded)})
	}
	for _, a := range accounts {
		if err := a.check(); err != nil {
			return err
		}
	}
	return nil
}

// An account is what became of all that was attempted.
type account struct {
	what                                             string
	attempted, delivered, dropped, folded, discarded uint64
}

func (a account) check() error {
	if a.attempted != a.delivered+a.dropped {
		return fmt.Errorf("%d %s attempted, but %d delivered and %d dropped", a.attempted, a.what, a.delivered,
			a.dropped)
	}
	if a.delivered != a.folded+a.discarded {
		return fmt.Errorf("%d %s delivered, but %d folded and %d discarded", a.delivered, a.what, a.folded, a.discarded)
	}
	return nil
}

// EventCost is what an event took of the guest's CPU time on average, with all hits of its probes;
// 0 without events.
func (s Stats) EventCost() time.Duration {
	if s.Events == nil || s.Events.Attempted == 0 {
		return 0
	}
	return s.Events.Cost / time.Duration(s.Events.Attempted)
}

// LostEvents returns the events of which the kernel side could not write a record; 0 without
// events.
func (s Stats) LostEvents() uint64 {
	if s.Events == nil {
		return 0
	}
	return sum(s.Events.Dropped)
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
