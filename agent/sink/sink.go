// Package sink turns profiles into what people and their tools read: pprof, collapsed stacks, text.
//
//	err := sink.CheckWritable(path)           // before recording, not after
//	err = sink.Write(path, os.Stdout, profile) // the format follows from the extension
//
// The functions are pure. Names in a profile were chosen by the programs that were profiled and are treated as
// hostile: whatever they hold, the output stays well-formed, and a terminal that shows it is not steered by it.
package sink

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"
)

// Summary accounts for the samples of a window in one line: how many there are, how many were lost and to what,
// and how many stacks end early.
func Summary(c profile.Counts) string {
	lost := maps.Clone(c.Dropped)
	if lost == nil {
		lost = make(map[string]uint64)
	}
	for cause, n := range c.Discarded {
		lost[cause] += n
	}
	parts := []string{
		fmt.Sprintf("samples: %d", c.Folded),
		causes("lost", lost),
		causes("truncated", c.Truncated),
	}
	if c.Stale > 0 {
		parts = append(parts, fmt.Sprintf("%d stale frames", c.Stale))
	}
	if c.Unknown > 0 {
		parts = append(parts, fmt.Sprintf("%d frames without a name", c.Unknown))
	}
	return strings.Join(parts, ", ")
}

// causes says "5 lost (malformed 2, ring_full 3)".
func causes(verb string, counts map[string]uint64) string {
	var sum uint64
	var list []string
	for _, cause := range slices.Sorted(maps.Keys(counts)) {
		if n := counts[cause]; n > 0 {
			sum += n
			list = append(list, fmt.Sprintf("%s %d", cause, n))
		}
	}
	if sum == 0 {
		return "0 " + verb
	}
	return fmt.Sprintf("%d %s (%s)", sum, verb, strings.Join(list, ", "))
}
