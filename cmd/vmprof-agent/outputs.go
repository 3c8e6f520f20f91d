package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	pprof "github.com/google/pprof/profile"
	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent"
	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/sink"
)

// Where a recording goes unless -o says: a file, or for several parts a directory.
const (
	defaultOutput    = "vmprof.pb.gz"
	defaultDirectory = "vmprof"
)

// An output is a file that a part of the recording goes to, and once it is written, what is in it.
type output struct {
	part
	path   string
	stored *pprof.Profile // in the form that views are made of
}

// outputs are the files of the recording. If there are several, -o names their directory.
func (o *recordOptions) outputs() []output {
	parts := o.parts()
	if len(parts) == 1 {
		return []output{{part: parts[0], path: o.output}}
	}
	var all []output
	for _, p := range parts {
		all = append(all, output{part: p, path: filepath.Join(o.output, p.name+".pb.gz")})
	}
	return all
}

// checkOutputs says whether the files can be written, and makes their directory.
func checkOutputs(outputs []output) error {
	for _, out := range outputs {
		if len(outputs) > 1 {
			if err := makeDirectory(filepath.Dir(out.path)); err != nil {
				return err
			}
		}
		if err := sink.CheckWritable(out.path); err != nil {
			return err
		}
	}
	return nil
}

// makeDirectory makes the directory for several files, unless there is one.
func makeDirectory(path string) error {
	err := os.Mkdir(path, 0o777)
	if info, statErr := os.Stat(path); errors.Is(err, fs.ErrExist) && statErr == nil && info.IsDir() {
		return nil
	}
	if err != nil {
		return fmt.Errorf("create the directory of -o for the files of several events: %w", err)
	}
	return nil
}

// write writes the outputs of a window that nobody else has. Each part is converted once: of deep stacks it is the largest
// thing in memory.
func (o *recordOptions) write(stdout io.Writer, p *profile.Profile, outputs []output) error {
	for i := range outputs {
		out := &outputs[i]
		content := out.content
		if content&sink.Time != 0 {
			content |= sink.ContentOf(p) & sink.Entries
		}
		var err error
		if out.stored, err = sink.Pprof(p, content); err != nil {
			return err
		}
		if format, err := sink.FormatOf(out.path); err == nil && format == sink.FormatCollapsed {
			if err := sink.Write(out.path, stdout, p, out.content); err != nil {
				return err
			}
			continue
		}
		if i == len(outputs)-1 {
			p.Processes = nil
		}
		if err := sink.WriteStored(out.path, stdout, out.stored); err != nil {
			return err
		}
	}
	return nil
}

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
