package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent"
)

// A contextLine is what a profile says of how the contexts of one process were found, in one of its windows: a comment
// such as
//
//	contexts of java (pid 4711) in window 2: chain, walked=50, linked=940, ambiguous=30, fitted=2, unplaced=1, nodes=346,
//	  shared=10, methods=122, by-depth=985/980/970, by-site=988/985/980, check=940/930/920/900
//
// on one line.
type contextLine struct {
	pid    int
	window int // from 1; 0 if the recording is one window
	agent.Contexts
}

// contextComment is how the comments begin.
const contextComment = "contexts of "

// A command name may look like a comment, but the fields hold no parenthesis: the last pid counts.
var contextPattern = regexp.MustCompile(`^contexts of .* \(pid (\d+)\)(?: in window (\d+))?: ([a-z]+), ([^()]*)$`)

// parseContextLine reads a comment. A field that it does not know is an error, as is one that is missing.
func parseContextLine(comment string) (l contextLine, err error) {
	m := contextPattern.FindStringSubmatch(comment)
	if m == nil {
		return l, fmt.Errorf("comment %q does not tell of contexts", comment)
	}
	if l.pid, err = strconv.Atoi(m[1]); err != nil {
		return l, fmt.Errorf("comment %q: %w", comment, err)
	}
	if m[2] != "" {
		if l.window, err = strconv.Atoi(m[2]); err != nil {
			return l, fmt.Errorf("comment %q: %w", comment, err)
		}
	}
	if l.Mode, err = agent.ParseContextMode(m[3]); err != nil {
		return l, fmt.Errorf("comment %q: %w", comment, err)
	}
	missing := l.required()
	for field := range strings.SplitSeq(m[4], ", ") {
		name, text, _ := strings.Cut(field, "=")
		if err := l.set(name, text); err != nil {
			return l, fmt.Errorf("comment %q: field %q: %w", comment, field, err)
		}
		missing = slices.DeleteFunc(missing, func(s string) bool { return s == name })
	}
	if len(missing) > 0 {
		return l, fmt.Errorf("comment %q has no %s", comment, strings.Join(missing, ", "))
	}
	return l, nil
}

// required are the fields that a line of this mode must have.
func (l *contextLine) required() []string {
	fields := []string{"walked", "linked", "ambiguous", "fitted", "unplaced"}
	if l.Mode == agent.ContextChain {
		fields = append(fields, "nodes", "shared", "methods", "by-depth", "by-site")
	}
	return fields
}

// set reads one field.
func (l *contextLine) set(name, text string) error {
	var values []uint64
	for number := range strings.SplitSeq(text, "/") {
		v, err := strconv.ParseUint(number, 10, 63)
		if err != nil {
			return err
		}
		values = append(values, v)
	}
	counts := map[string]*uint64{
		"walked": &l.Walked, "linked": &l.Linked, "ambiguous": &l.Ambiguous, "fitted": &l.Fitted, "unplaced": &l.Unplaced,
	}
	sizes := map[string]*int{"nodes": &l.Nodes, "shared": &l.Shared, "methods": &l.Methods}
	levels := map[string]*[3]uint64{"by-depth": &l.ByDepth, "by-site": &l.BySite}
	switch {
	case counts[name] != nil && len(values) == 1:
		*counts[name] = values[0]
	case sizes[name] != nil && len(values) == 1:
		*sizes[name] = int(values[0])
	case levels[name] != nil && len(values) == len(levels[name]):
		copy(levels[name][:], values)
	case name == "check" && len(values) == 1+len(agent.ContextLevels):
		l.Check = &agent.ContextCheck{Samples: values[0]}
		copy(l.Check.Right[:], values[1:])
	default:
		return fmt.Errorf("not known with %d values", len(values))
	}
	return nil
}

// contextLines returns what a profile says of one process, in the order of its windows, of which there is one line each.
func contextLines(p *profile.Profile, pid int) (lines []contextLine, err error) {
	for _, comment := range p.Comments {
		if !strings.HasPrefix(comment, contextComment) {
			continue
		}
		l, err := parseContextLine(comment)
		if err != nil {
			return nil, err
		}
		if l.pid == pid {
			lines = append(lines, l)
		}
	}
	slices.SortFunc(lines, func(a, b contextLine) int { return a.window - b.window })
	for i := 1; i < len(lines); i++ {
		if lines[i].window == lines[i-1].window {
			return nil, fmt.Errorf("the profile tells twice of the contexts of process %d in window %d", pid, lines[i].window)
		}
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("the profile does not tell of the contexts of process %d", pid)
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
