package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
	"github.com/vmprof-agent/vmprof-agent/tests/stacks"
	"github.com/vmprof-agent/vmprof-agent/tests/suite"
)

// realPrograms are the programs whose stacks must be whole, from the shallowest stacks to the
// deepest. The short form has the deepest.
var (
	realPrograms  = []string{"Jython", "Xalan", "Javac", "Scalac"}
	shortPrograms = []string{"Scalac"}
)

// A complete is how many of a real program's stacks are complete.
type complete struct {
	program string
	jdk     jvm.JDK
	samples int64
	whole   float64  // share, 0 to 1
	depth   float64  // mean number of Java frames
	reasons []string // reasons why the rest is not whole, most frequent first
	wrong   []string // stacks that are neither whole nor marked, a few
}

func (c complete) ok() bool { return c.whole >= wholeStacks }

// planCompleteness records each real program from its first iteration on, interpreter and
// compilation included.
func planCompleteness(jdks []jvm.JDK) plan {
	return harness.Trials[meter, completeTrial, complete]{
		All: func(short bool) []completeTrial { return completeTrials(jdks, short) },
		Run: harness.OneByOne(meter.complete),
		Tables: func(results []complete) []harness.Table {
			return []harness.Table{{Marker: "completeness", Table: completeTable(results)}}
		},
		OK: func(results []complete) bool {
			return !slices.ContainsFunc(results, func(c complete) bool { return !c.ok() })
		},
	}.Plan
}

// A completeTrial is a real program to record.
type completeTrial struct {
	program string
	jdk     jvm.JDK
}

// String is the trial's name, which -run matches.
func (t completeTrial) String() string { return fmt.Sprintf("%s, %v", t.program, t.jdk) }

func completeTrials(jdks []jvm.JDK, short bool) (trials []completeTrial) {
	programs := realPrograms
	if short {
		jdks, programs = jdks[:1], shortPrograms
	}
	for _, jdk := range jdks {
		for _, program := range programs {
			trials = append(trials, completeTrial{program, jdk})
		}
	}
	return trials
}

func completeTable(results []complete) report.Table {
	table := report.Table{Header: []string{"program", "JDK", "whole stacks", "of samples", "Java frames, mean",
		"the rest"}}
	for _, c := range results {
		table.Add(c.program, c.jdk.Release, percent(c.whole)+" %", fmt.Sprint(c.samples), fmt.Sprintf("%.0f", c.depth),
			c.rest())
	}
	return table
}

func (m meter) complete(ctx context.Context, t completeTrial) (complete, error) {
	guest, err := suite.Start(ctx, t.jdk, t.program)
	if err != nil {
		return complete{}, err
	}
	defer guest.Close()
	recording, err := m.agent.While(ctx, profiler.Options{PID: guest.PID(), Frequency: m.how.frequency},
		(*profiler.AgentRun).WaitSampling, func(*profiler.AgentRun) error {
			_, err := guest.RunFor(2 * m.how.recording)
			return err
		})
	if err != nil {
		return complete{}, err
	}
	c := summarise(stacks.OnThread(stacks.FromProfile(recording.Profile), suite.Thread))
	c.program, c.jdk = t.program, t.jdk
	fmt.Fprintf(m.out, "%v: %.2f%% of %d stacks are whole, %.0f Java frames on average: %s\n",
		t, 100*c.whole, c.samples, c.depth, report.Verdict(c.ok()))
	c.printRest(m.out)
	return c, nil
}

// printRest prints why the other stacks are incomplete.
func (c complete) printRest(w io.Writer) {
	for _, line := range append(c.reasons, c.wrong...) {
		fmt.Fprintln(w, " ", line)
	}
}

// summarise examines the stacks of the program's own thread.
func summarise(own []stacks.Stack) complete {
	var c complete
	var wholes, frames int64
	reasons := make(map[string]int64)
	for _, s := range own {
		c.samples += s.Count
		for _, frame := range s.Frames {
			if frame.Java() {
				frames += s.Count
			}
		}
		switch reason := s.Truncated(); {
		case whole(s):
			wholes += s.Count
		case reason != "":
			reasons[fmt.Sprintf("%s, %s", reason, cutBelow(s))] += s.Count
		default:
			reasons["without an entry frame, unmarked"] += s.Count
			if len(c.wrong) < maxExamples {
				c.wrong = append(c.wrong, abridge(s))
			}
		}
	}
	if c.samples > 0 {
		c.whole = float64(wholes) / float64(c.samples)
		c.depth = float64(frames) / float64(c.samples)
	}
	c.reasons = most(reasons)
	return c
}

// cutBelow is the outermost frame of a truncated stack: the one whose caller was not found.
func cutBelow(s stacks.Stack) string {
	if len(s.Frames) < 2 {
		return "at once"
	}
	return "below " + s.Frames[len(s.Frames)-2].Function
}

// rest lists why the other stacks are incomplete, with the number of samples, for a table.
func (c complete) rest() string {
	var reasons []string
	for _, reason := range c.reasons {
		reasons = append(reasons, strings.TrimSpace(reason))
	}
	return strings.Join(reasons, "; ")
}
