package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/tests/events"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// A variant is a way to run a program, to find out what the samples of two profilers differ by.
type variant struct {
	name  string
	flags []string // for the JVM; they come last
}

// variants are how a program runs for the control. C2 gives one place in the source to all
// instructions that it makes up itself once a method was inlined late; without these optimisations
// none is.
var variants = []variant{
	{name: "as compared"},
	{name: "nothing inlined late", flags: []string{"-XX:-IncrementalInline", "-XX:-OptimizeStringConcat",
		"-XX:-EliminateAutoBox"}},
	{name: "without DebugNonSafepoints", flags: []string{"-XX:-DebugNonSafepoints"}},
}

// A control compares two profiles of one program.
type control struct {
	program, variant string
	profiles         string // the two profiles that are compared
	compiled, inner  overlap
}

// An overlap is that of two profiles, in percent, beside what two samples of one distribution would
// have.
type overlap struct{ is, alike float64 }

func (o overlap) String() string { return fmt.Sprintf("%.1f of %.1f %%", o.is, o.alike) }

func overlapOf(a, b events.Weights) overlap { return overlap{a.Overlap(b), alike(a, b)} }

func compareSampled(a, b sampled) (compiled, inner overlap) {
	return overlapOf(a.compiled, b.compiled), overlapOf(a.innermost, b.innermost)
}

// controls runs a program twice in each variant, and compares the profiles of each run, and of each
// profiler.
func controls(ctx context.Context, recorder profiler.Agent, jdk jvm.JDK, p program) (list []control, err error) {
	dir, err := os.MkdirTemp("", "vmprof-crosscheck-"+strings.ToLower(p.name)+"-")
	if err != nil {
		return nil, fmt.Errorf("create a directory: %w", err)
	}
	defer os.RemoveAll(dir)
	ready, err := p.prepare(ctx, jdk, dir) // once: the directory is in the names of classes
	if err != nil {
		return nil, err
	}
	for i, v := range variants {
		var own, jfr [2]sampled
		for run := range own {
			logs := filepath.Join(dir, fmt.Sprintf("logs-%d-%d", i, run))
			if err := os.Mkdir(logs, 0o755); err != nil {
				return nil, fmt.Errorf("create a directory: %w", err)
			}
			t, recording, err := observe(ctx, recorder, jdk, ready, logs, v.flags)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", v.name, err)
			}
			own[run], jfr[run] = sampledBy(recording.Kinds["cpu"]), t.sampled
		}
		add := func(profiles string, a, b sampled) {
			c := control{program: p.name, variant: v.name, profiles: profiles}
			c.compiled, c.inner = compareSampled(a, b)
			list = append(list, c)
		}
		add("agent, agent in another run", own[0], own[1])
		add("JFR, JFR in another run", jfr[0], jfr[1])
		add("agent, JFR in the same run", own[0], jfr[0])
		add("agent, JFR in the same run, again", own[1], jfr[1])
	}
	return list, nil
}

func tabulateControls(list []control) report.Table {
	table := report.Table{Header: []string{"program", "JVM", "profiles", "compiled methods, overlap",
		"innermost methods, overlap"}}
	for _, c := range list {
		table.Add(c.program, c.variant, c.profiles, c.compiled.String(), c.inner.String())
	}
	return table
}

// runControls runs the controls of one program, and prints their table.
func runControls(
	ctx context.Context, out io.Writer, recorder profiler.Agent, jdk jvm.JDK, p program, update bool,
) error {
	list, err := controls(ctx, recorder, jdk, p)
	if err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	table := tabulateControls(list)
	if err := table.Print(out); err != nil {
		return err
	}
	if !update {
		return nil
	}
	return report.Update(docs, "crosscheck-controls", table.Markdown())
}
