package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
	"github.com/vmprof-agent/vmprof-agent/tests/stacks"
	"github.com/vmprof-agent/vmprof-agent/tests/suite"
)

// realPrograms are the programs whose stacks must be whole, from the shallowest stacks to the deepest.
// The short form has the second and the deepest.
var (
	realPrograms  = []string{"Jython", "Xalan", "Javac", "Scalac"}
	shortPrograms = []string{"Xalan", "Scalac"}
)

// A complete says how many of a real program's stacks are whole.
type complete struct {
	program string
	jdk     jvm.JDK
	samples int64
	whole   float64  // share, 0 to 1
	depth   float64  // mean number of Java frames
	reasons []string // of the rest, most frequent first
	wrong   []string // stacks that are neither whole nor marked, a few
}

func (c complete) ok() bool { return c.whole >= wholeStacks }

// The completeness section records each real program from its first iteration on, interpreter and compilation included.
type completeness struct {
	trials    []completeTrial
	completes []complete
}

// A completeTrial is a real program to record.
type completeTrial struct {
	program string
	jdk     jvm.JDK
}

// String is the trial's name: what -run is matched with.
func (t completeTrial) String() string { return fmt.Sprintf("%s, %v", t.program, t.jdk) }

func planCompleteness(jdks []jvm.JDK, o options) (trials []completeTrial) {
	programs := realPrograms
	if o.short {
		jdks, programs = jdks[:1], shortPrograms
	}
	for _, jdk := range jdks {
		for _, program := range programs {
			if t := (completeTrial{program, jdk}); o.run.MatchString(t.String()) {
				trials = append(trials, t)
			}
		}
	}
	return trials
}

func (s *completeness) run(ctx context.Context, m meter) error {
	for _, t := range s.trials {
		c, err := m.complete(ctx, t.jdk, t.program)
		if err != nil {
			return fmt.Errorf("%v: %w", t, err)
		}
		fmt.Fprintf(m.out, "%v: %.2f%% of %d stacks are whole, %.0f Java frames on average: %s\n",
			t, 100*c.whole, c.samples, c.depth, report.Verdict(c.ok()))
		for _, line := range append(c.reasons, c.wrong...) {
			fmt.Fprintln(m.out, " ", line)
		}
		s.completes = append(s.completes, c)
	}
	return nil
}

func (s *completeness) tables() []namedTable {
	table := report.Table{Header: []string{"program", "JDK", "whole stacks", "of samples", "Java frames, mean", "the rest"}}
	for _, c := range s.completes {
		table.Add(c.program, c.jdk.Release, percent(c.whole)+" %", fmt.Sprint(c.samples), fmt.Sprintf("%.0f", c.depth), c.rest())
	}
	return []namedTable{{"completeness", table}}
}

func (s *completeness) ok() bool {
	return !slices.ContainsFunc(s.completes, func(c complete) bool { return !c.ok() })
}

func (m meter) complete(ctx context.Context, jdk jvm.JDK, program string) (complete, error) {
	guest, err := suite.Start(ctx, jdk, program)
	if err != nil {
		return complete{}, err
	}
	defer guest.Close()
	run, err := m.agent.Start(ctx, profiler.Options{PID: guest.PID(), Frequency: m.how.frequency})
	if err != nil {
		return complete{}, err
	}
	if err := run.WaitSampling(); err != nil {
		return complete{}, err
	}
	if _, err := guest.RunFor(2 * m.how.recording); err != nil {
		return complete{}, err
	}
	recording, err := run.Stop()
	if err != nil {
		return complete{}, err
	}
	if err := recording.Stats.CheckIdentities(); err != nil {
		return complete{}, err
	}
	c := summarise(stacks.OnThread(stacks.Of(recording.Profile), suite.Thread))
	c.program, c.jdk = program, jdk
	return c, nil
}

// summarise looks at the stacks of the program's own thread.
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

// rest is why the other stacks are not whole, with the number of samples, for a table.
func (c complete) rest() string {
	var reasons []string
	for _, reason := range c.reasons {
		reasons = append(reasons, strings.TrimSpace(reason))
	}
	return strings.Join(reasons, "; ")
}
