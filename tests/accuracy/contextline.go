package main

import (
	"cmp"
	"fmt"
	"slices"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/stored"
)

// A contextLine is what a profile says of the contexts of one process, in one of its windows.
type contextLine struct{ stored.ProcessContexts }

// contextLines returns what a profile says of one process, in the order of its windows, of which there is one line each.
func contextLines(p *pprof.Profile, pid int) (lines []contextLine, err error) {
	m, err := stored.MetadataOf(p)
	if err != nil {
		return nil, fmt.Errorf("metadata of the profile: %w", err)
	}
	for _, l := range m.Contexts {
		if l.PID == int64(pid) {
			lines = append(lines, contextLine{l})
		}
	}
	slices.SortFunc(lines, func(a, b contextLine) int { return cmp.Compare(a.Window, b.Window) })
	for i := 1; i < len(lines); i++ {
		if lines[i].Window == lines[i-1].Window {
			return nil, fmt.Errorf("the profile has twice the contexts of process %d in window %d", pid, lines[i].Window)
		}
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("the profile does not say how contexts were found of process %d", pid)
	}
	return lines, nil
}

// checkIdentities returns an error unless the counts of a line add up: to this many samples that the profile has of the
// process in the window.
func (l *contextLine) checkIdentities(samples uint64) error {
	if l.Walked+l.Linked != samples {
		return fmt.Errorf("%d samples, but %d walked and %d linked", samples, l.Walked, l.Linked)
	}
	if l.Ambiguous+l.Fitted+l.Unplaced > l.Linked {
		return fmt.Errorf("%d samples linked, but %d ambiguous, %d fitted and %d unplaced", l.Linked, l.Ambiguous, l.Fitted, l.Unplaced)
	}
	for _, levels := range [][3]uint64{l.ByDepth, l.BySite} {
		if levels[0] > samples || levels[1] > levels[0] || levels[2] > levels[1] {
			return fmt.Errorf("of %d samples, %v have unique callers for one level, three and all", samples, levels)
		}
	}
	if c := l.Check; c != nil {
		// Of what cannot be placed at all there may be nothing to check.
		if c.Samples > l.Linked || c.Samples+l.Unplaced < l.Linked {
			return fmt.Errorf("%d samples linked, %d of them unplaced, but %d checked", l.Linked, l.Unplaced, c.Samples)
		}
		if c.Right[0] > c.Samples || c.Right[1] > c.Right[0] || c.Right[2] > c.Right[1] {
			return fmt.Errorf("of %d contexts that were checked, %v are right for one level, three and all", c.Samples, c.Right)
		}
	}
	return nil
}
