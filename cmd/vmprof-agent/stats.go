package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent"
)

// recordStats is what --stats writes: counters of one recording, for benchmarks and tests.
type recordStats struct {
	SamplesAttempted uint64              `json:"samples_attempted"`
	SamplesDelivered uint64              `json:"samples_delivered"`
	SamplesDropped   map[string]uint64   `json:"samples_dropped"`
	SamplesFolded    uint64              `json:"samples_folded"`
	SamplesDiscarded map[string]uint64   `json:"samples_discarded"`
	TicksIdle        uint64              `json:"ticks_idle"`
	TicksFiltered    uint64              `json:"ticks_filtered"`
	Truncated        map[string]uint64   `json:"truncated"`
	Stale            uint64              `json:"stale"`
	Unknown          uint64              `json:"unknown"`
	JavaSamples      uint64              `json:"java_samples"`
	JavaFrames       uint64              `json:"java_frames"`
	BPFNanos         int64               `json:"bpf_ns_total"`
	BPFNanosJava     int64               `json:"bpf_ns_java"`
	RingBytes        uint64              `json:"ring_bytes"`
	SegmentMisses    uint64              `json:"segment_misses"`
	StackCopies      uint64              `json:"window_fills"`
	CodeUnloads      uint64              `json:"code_unloads"`
	MapBytes         uint64              `json:"map_bytes"`
	AgentCPUSeconds  float64             `json:"agent_cpu_seconds"`
	AgentRSSBytes    int64               `json:"agent_rss_bytes"` // the most it ever was
	FirstSymbolised  float64             `json:"first_symbolised_seconds"`
	ReadFailures     uint64              `json:"read_failures"`
	Calls            *profile.CallStats  `json:"calls,omitempty"`
	Events           *profile.EventStats `json:"events,omitempty"`
}

func writeStats(path string, a *agent.Agent, c profile.Counts) error {
	cost, health := a.Cost(), a.Stats()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return fmt.Errorf("read own resource usage: %w", err)
	}
	s := recordStats{
		SamplesAttempted: c.Attempted, SamplesDelivered: c.Delivered, SamplesDropped: c.Dropped,
		SamplesFolded: c.Folded, SamplesDiscarded: c.Discarded, TicksIdle: c.Idle, TicksFiltered: c.Filtered,
		Truncated: c.Truncated, Stale: c.Stale, Unknown: c.Unknown,
		JavaSamples: cost.JavaSamples, JavaFrames: cost.JavaFrames,
		BPFNanos: int64(cost.BPFTime), BPFNanosJava: int64(cost.BPFJavaTime), RingBytes: cost.RingBytes,
		SegmentMisses: cost.SegmentMisses, StackCopies: cost.StackCopies, CodeUnloads: cost.CodeUnloads,
		MapBytes:        health.MapBytes,
		AgentCPUSeconds: float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9,
		AgentRSSBytes:   u.Maxrss << 10,
		FirstSymbolised: cost.FirstGuestFrame.Seconds(),
		Calls:           health.Calls, Events: health.Events,
	}
	for _, n := range health.ReadFailures {
		s.ReadFailures += n
	}
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encode stats: %w", err)
	}
	if err := os.WriteFile(path, append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("write stats: %w", err)
	}
	return nil
}
