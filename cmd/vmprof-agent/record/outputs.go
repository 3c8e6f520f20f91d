package record

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	pprof "github.com/google/pprof/profile"
	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent"
	"github.com/vmprof-agent/vmprof-agent/agent/host/outfile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/cli"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/sampling"
)

// Where a recording goes unless -o says: a file, or for several parts a directory.
const (
	defaultOutput    = "vmprof.pb.gz"
	defaultDirectory = "vmprof"
)

// An output is a part of the recording with a file that it goes to, and once it is written, what is
// in it.
type output struct {
	sampling.Part
	path   string         // "" if the part is only in files with all parts
	again  bool           // the same part as the output before
	failed bool           // the file could not be written
	stored *pprof.Profile // in the form that views are made of
}

// outputs are the files of the recording that have one part each, and those with all of them. An -o
// that could be a file of one part is a directory if there are several.
func (o *recordOptions) outputs() (single []output, together []string) {
	parts := o.parts()
	var names []string
	for _, name := range o.output {
		if format, err := sink.FormatOf(name); err == nil && format.Together() {
			together = append(together, name)
		} else {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		names = []string{""}
	}
	for _, p := range parts {
		for i, name := range names {
			if name != "" && len(parts) > 1 {
				name = filepath.Join(name, p.Name+".pb.gz")
			}
			single = append(single, output{Part: p, path: name, again: i > 0})
		}
	}
	return single, together
}

// checkStdout refuses - for several parts, which are files of a directory.
func (o *recordOptions) checkStdout() error {
	if len(o.parts()) > 1 && slices.Contains(o.output, sink.Stdout) {
		return cli.Misuse("-o - can have one kind of events: record one with -e, or write a directory (-o out) or a " +
			"page with all of them (-o out.html)")
	}
	return nil
}

// checkOutputs says whether the files can be written, and makes the directories of several.
func (o *recordOptions) checkOutputs(outputs []output, together []string) error {
	for _, out := range outputs {
		if out.path == "" {
			continue
		}
		if len(o.parts()) > 1 {
			if err := makeDirectory(filepath.Dir(out.path)); err != nil {
				return err
			}
		}
		if err := sink.CheckWritable(out.path); err != nil {
			return err
		}
	}
	for _, path := range together {
		if err := sink.CheckWritable(path); err != nil {
			return err
		}
	}
	return nil
}

// writeTogether writes the files that have all parts. It returns those that it wrote, also with an
// error.
func (o *recordOptions) writeTogether(
	stdout io.Writer, outputs []output, together []string,
) (written []string, err error) {
	var errs []error
	for _, path := range together {
		where, err := o.rescue.write(path, func(path string) error { return writeAll(path, stdout, outputs) })
		errs = append(errs, err)
		if where != "" {
			written = append(written, where)
		}
	}
	return written, errors.Join(errs...)
}

// writeAll writes a file that has all parts.
func writeAll(path string, stdout io.Writer, outputs []output) error {
	name := filepath.Base(path)
	page := sink.Page{Title: strings.TrimSuffix(name, filepath.Ext(name))}
	for _, out := range outputs {
		if !out.again {
			page.Add(out.Name+".pb.gz", out.stored)
			page.Commands = append(page.Commands, "vmprof-agent report "+cmp.Or(out.path, out.Name+".pb.gz"))
		}
	}
	return page.WriteFile(path, stdout)
}

// makeDirectory makes the directory for several files, unless there is one.
func makeDirectory(path string) error {
	dir, err := outfile.MakeDir(path, 0o777, false)
	if err != nil {
		return fmt.Errorf("create the directory %s of -o for the files of several events: %w", path, err)
	}
	return unix.Close(dir)
}

// write writes the outputs of a window that nobody else has. Each part is converted once: of deep
// stacks it is the largest thing in memory. A file that cannot be written is marked and is in the
// error; all parts are there nevertheless, unless unusable.
func (o *recordOptions) write(stdout io.Writer, p *profile.Profile, outputs []output) (failed, unusable error) {
	for i := range outputs {
		out := &outputs[i]
		if out.again {
			out.stored = outputs[i-1].stored
			failed = errors.Join(failed, o.writeOne(stdout, p, out))
			continue
		}
		content := out.Content
		if content&sink.Time != 0 {
			content |= sink.ContentOf(p) & sink.Entries
		}
		var err error
		if out.stored, err = sink.Pprof(p, content); err != nil {
			return failed, err
		}
		if i == len(outputs)-1 && !collapsed(out.path) {
			p.Processes = nil
		}
		failed = errors.Join(failed, o.writeOne(stdout, p, out))
	}
	p.Processes = nil
	return failed, nil
}

// collapsed reports whether a file is made of the profile as the agent has it.
func collapsed(path string) bool {
	format, err := sink.FormatOf(path)
	return err == nil && format == sink.FormatCollapsed
}

// writeOne writes one file of a part, or notes where it is instead.
func (o *recordOptions) writeOne(stdout io.Writer, p *profile.Profile, out *output) error {
	if out.path == "" {
		return nil
	}
	where, err := o.rescue.write(out.path, func(path string) error {
		if collapsed(path) {
			return sink.Write(path, stdout, p, out.Content)
		}
		return sink.WriteStored(path, stdout, out.stored)
	})
	if out.failed = where == ""; !out.failed {
		out.path = where
	}
	return err
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
	UnwindFrames     uint64              `json:"unwind_frames"`
	UnwindLookups    uint64              `json:"unwind_lookups"`
	UnwindTables     int                 `json:"unwind_tables"`
	UnwindBytes      uint64              `json:"unwind_table_bytes"`
	UnwindLosses     map[string]uint64   `json:"unwind_losses"`
	MapBytes         uint64              `json:"map_bytes"`
	AgentCPUSeconds  float64             `json:"agent_cpu_seconds"`
	AgentRSSBytes    int64               `json:"agent_rss_bytes"` // the most it ever was
	FirstSymbolised  float64             `json:"first_symbolised_seconds"`
	ReadFailures     uint64              `json:"read_failures"`
	Calls            *profile.CallStats  `json:"calls,omitempty"`
	Events           *profile.EventStats `json:"events,omitempty"`
}

// An agentUse is what the agent counted of itself.
type agentUse struct {
	cost   agent.Cost
	health profile.Stats
}

func useOf(a *agent.Agent) agentUse { return agentUse{a.Cost(), a.Stats()} }

func writeStats(path string, use agentUse, c profile.Counts) error {
	cost, health := use.cost, use.health
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
		UnwindFrames: health.UnwindFrames, UnwindLookups: health.UnwindLookups, UnwindTables: health.UnwindTables,
		UnwindBytes: health.UnwindBytes, UnwindLosses: health.UnwindLosses,
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
	return outfile.Write(path, func(w io.Writer) error {
		_, err := w.Write(append(b, '\n'))
		return err
	})
}
