package main

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent"
)

// chainedLine is what chainedComment says.
func chainedLine() contextLine {
	return contextLine{pid: 4711, window: 2, Contexts: agent.Contexts{
		Mode: agent.ContextChain, Walked: 50, Linked: 940, Ambiguous: 30, Fitted: 2, Unplaced: 1,
		Nodes: 346, Shared: 10, Methods: 122, ByDepth: [3]uint64{985, 980, 970}, BySite: [3]uint64{988, 985, 980},
		Check: &agent.ContextCheck{Samples: 940, Right: [3]uint64{930, 920, 900}},
	}}
}

const chainedComment = "contexts of java (pid 4711) in window 2: chain, walked=50, linked=940, ambiguous=30, fitted=2, unplaced=1, " +
	"nodes=346, shared=10, methods=122, by-depth=985/980/970, by-site=988/985/980, check=940/930/920/900"

func TestContextLine(t *testing.T) {
	got, err := parseContextLine(chainedComment)
	if err != nil || !reflect.DeepEqual(got, chainedLine()) {
		t.Errorf("got %+v, %v", got, err)
	}
	const partial = "contexts of a (pid 1): chain, x (pid 7): partial, walked=3, linked=147, ambiguous=0, fitted=0, unplaced=4"
	want := contextLine{pid: 7, Contexts: agent.Contexts{Mode: agent.ContextPartial, Walked: 3, Linked: 147, Unplaced: 4}}
	if got, err = parseContextLine(partial); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestContextLineErrors(t *testing.T) {
	for what, comment := range map[string]string{
		"another comment":  "samples: 1000, 0 lost",
		"no pid":           strings.Replace(chainedComment, " (pid 4711)", "", 1),
		"mode":             strings.Replace(chainedComment, "chain", "guess", 1),
		"a field less":     strings.Replace(chainedComment, "unplaced=1, ", "", 1),
		"a value less":     strings.Replace(chainedComment, "985/980/970", "985/980", 1),
		"a value more":     strings.Replace(chainedComment, "walked=50", "walked=50/1", 1),
		"no number":        strings.Replace(chainedComment, "walked=50", "walked=fifty", 1),
		"an unknown field": chainedComment + ", guessed=1",
		"a half check":     strings.Replace(chainedComment, "/920/900", "", 1),
	} {
		if l, err := parseContextLine(comment); err == nil {
			t.Errorf("%s: got %+v", what, l)
		}
	}
}

func TestContextLines(t *testing.T) {
	other := strings.Replace(chainedComment, "4711", "4712", 1)
	first := strings.Replace(chainedComment, "window 2", "window 1", 1)
	p := &profile.Profile{Comments: []string{"samples: 2000", chainedComment, other, first}}
	lines, err := contextLines(p, 4711)
	if err != nil || len(lines) != 2 || lines[0].window != 1 || !reflect.DeepEqual(lines[1], chainedLine()) {
		t.Errorf("got %+v, %v", lines, err)
	}
	if lines, err := contextLines(p, 1); err == nil {
		t.Errorf("got %+v of a process that is not there", lines)
	}
	for what, comment := range map[string]string{
		"twice the same": first,
		"nonsense":       "contexts of java are nonsense",
	} {
		changed := &profile.Profile{Comments: append([]string{comment}, p.Comments...)}
		if lines, err := contextLines(changed, 4711); err == nil {
			t.Errorf("%s: got %+v", what, lines)
		}
	}
}

func TestContextIdentities(t *testing.T) {
	l := chainedLine()
	if err := l.checkIdentities(990); err != nil {
		t.Fatal(err)
	}
	l.Check.Samples = 939 // one cannot be checked, as it was not placed
	if err := l.checkIdentities(990); err != nil {
		t.Error(err)
	}
	if err := l.checkIdentities(991); err == nil {
		t.Error("a sample is missing, and nobody noticed")
	}
	for what, change := range map[string]func(*contextLine){
		"linked twice":            func(l *contextLine) { l.Ambiguous = 938 },
		"more unique than there":  func(l *contextLine) { l.ByDepth[0] = 991 },
		"three but not one":       func(l *contextLine) { l.BySite[1] = 989 },
		"all but not three":       func(l *contextLine) { l.ByDepth[2] = 981 },
		"checked but not linked":  func(l *contextLine) { l.Check.Samples = 941 },
		"placed but not checked":  func(l *contextLine) { l.Check.Samples = 938 },
		"right but not checked":   func(l *contextLine) { l.Check.Right[0] = 941 },
		"three right but not one": func(l *contextLine) { l.Check.Right[1] = 931 },
		"all right but not three": func(l *contextLine) { l.Check.Right[2] = 921 },
	} {
		l := chainedLine()
		change(&l)
		if err := l.checkIdentities(990); err == nil {
			t.Errorf("%s was not noticed", what)
		}
	}
}
