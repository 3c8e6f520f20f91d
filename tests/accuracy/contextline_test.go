package main

import (
	"reflect"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/stored"
)

// chainedLine is a line of which all adds up.
func chainedLine() contextLine {
	return contextLine{stored.ProcessContexts{Comm: "java", PID: 4711, Window: 2, Contexts: profile.Contexts{
		Mode: profile.ContextChain, Walked: 50, Linked: 940, Ambiguous: 30, Fitted: 2, Unplaced: 1,
		Nodes: 346, Shared: 10, Methods: 122, ByDepth: [3]uint64{985, 980, 970}, BySite: [3]uint64{988, 985, 980},
		Check: &profile.ContextCheck{Samples: 940, Right: [3]uint64{930, 920, 900}},
	}}}
}

func lineOf(c profile.Contexts) contextLine { return contextLine{stored.ProcessContexts{Contexts: c}} }

func TestContextLines(t *testing.T) {
	second := chainedLine().ProcessContexts
	other, first := second, second
	other.PID, first.Window = 4712, 1
	profileOf := func(list ...stored.ProcessContexts) *pprof.Profile {
		p, m := new(pprof.Profile), stored.Metadata{Contexts: list}
		if err := m.Store(p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := profileOf(second, other, first)
	lines, err := contextLines(p, 4711)
	if err != nil || len(lines) != 2 || lines[0].Window != 1 || !reflect.DeepEqual(lines[1], chainedLine()) {
		t.Errorf("got %+v, %v", lines, err)
	}
	if lines, err := contextLines(p, 1); err == nil {
		t.Errorf("got %+v of a process that is not there", lines)
	}
	if lines, err := contextLines(profileOf(first, second, other, first), 4711); err == nil {
		t.Errorf("a window is there twice: got %+v", lines)
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
