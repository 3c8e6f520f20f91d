package httpd

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent"
	"github.com/vmprof-agent/vmprof-agent/agent/sink"
)

const (
	// processLabel is a label that only the pages have: the outermost frame of their graphs.
	processLabel = "process"
	// maxStacks bounds the memory and time that a page takes: distinct stacks in the merged profile.
	maxStacks = 100_000
)

// merge makes one pprof profile of windows, of which there is at least one. Beyond limit distinct stacks the
// rarest are left out, and a comment says so.
func merge(windows []*agent.Profile, limit int) (*profile.Profile, error) {
	// Each window gets the accounts of all. They become comments, and equal comments become one.
	var counts agent.Counts
	for _, w := range windows {
		counts = plus(counts, w.Counts)
	}
	var all []*profile.Profile
	for _, w := range windows {
		w := *w
		w.Counts = counts
		p, err := sink.Pprof(&w)
		if err != nil {
			return nil, fmt.Errorf("encode window: %w", err)
		}
		for _, s := range p.Sample {
			s.Label[processLabel] = []string{processName(s)}
		}
		all = append(all, p)
	}
	merged, err := profile.Merge(all)
	if err != nil {
		return nil, fmt.Errorf("merge windows: %w", err)
	}
	if n := len(merged.Sample) - limit; n > 0 {
		slices.SortStableFunc(merged.Sample, func(a, b *profile.Sample) int { return cmp.Compare(b.Value[0], a.Value[0]) })
		merged.Sample = merged.Sample[:limit]
		merged = merged.Compact()
		merged.Comments = append(merged.Comments, fmt.Sprintf("the %d rarest stacks are left out; /profiles/cpu has all", n))
	}
	return merged, nil
}

// processName is what people call the process of a sample: its name and number.
func processName(s *profile.Sample) string {
	name := "[unknown]"
	if comm := s.Label["comm"]; len(comm) > 0 {
		name = comm[0]
	}
	if pid := s.NumLabel["pid"]; len(pid) > 0 {
		name = fmt.Sprintf("%s [%d]", name, pid[0])
	}
	return name
}

// plus adds up the accounts of two windows.
func plus(a, b agent.Counts) agent.Counts {
	return agent.Counts{
		Attempted: a.Attempted + b.Attempted,
		Delivered: a.Delivered + b.Delivered,
		Dropped:   plusEach(a.Dropped, b.Dropped),
		Folded:    a.Folded + b.Folded,
		Discarded: plusEach(a.Discarded, b.Discarded),
		Idle:      a.Idle + b.Idle,
		Filtered:  a.Filtered + b.Filtered,
		Truncated: plusEach(a.Truncated, b.Truncated),
		Stale:     a.Stale + b.Stale,
		Unknown:   a.Unknown + b.Unknown,
	}
}

func plusEach(a, b map[string]uint64) map[string]uint64 {
	sum := make(map[string]uint64, len(a))
	maps.Copy(sum, a)
	for cause, n := range b {
		sum[cause] += n
	}
	return sum
}
