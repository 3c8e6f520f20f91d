package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/tests/stacks"
)

// leaves returns where most samples are, by their innermost Java method and what it calls: what a reader of a share
// that is off wants to see first.
func leaves(own []stacks.Stack) []string {
	counts := make(map[string]int64)
	for _, s := range own {
		counts[leaf(s)] += s.Count
	}
	return most(counts)
}

func leaf(s stacks.Stack) string {
	if len(s.Frames) == 0 {
		return "(no frames)"
	}
	innermost := s.Frames[0].Function
	for _, frame := range s.Frames {
		if frame.Java() && frame.Function != innermost {
			return frame.Function + " > " + innermost
		}
		if frame.Java() {
			break
		}
	}
	return innermost
}

// most returns the largest counts, a line each.
func most(counts map[string]int64) []string {
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	var lines []string
	for _, name := range names[:min(len(names), maxExamples)] {
		lines = append(lines, fmt.Sprintf("%6d %s", counts[name], name))
	}
	return lines
}
