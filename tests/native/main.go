// Command native records programs of Debian whose code keeps no frame pointers, and perf record
// --call-graph dwarf beside the agent, which copies the stack of each sample and unwinds it
// afterwards. The table has how many stacks are whole, how deep they are, and how well both agree.
//
//	go run ./tests/native              # all programs that are installed; five minutes
//	go run ./tests/native -short       # two of them: what CI runs
//	go run ./tests/native -run ruby
//	go run ./tests/native -update      # also rewrites the table in docs/measurements/native-stacks.md
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"

	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// docs is the page whose table -update rewrites, from the root of the repository.
const docs = "docs/measurements/native-stacks.md"

func main() { harness.Main("native", run) }

// A bench has what the section needs.
type bench struct {
	agent profiler.Agent
	dir   string
	short bool
	out   io.Writer
}

// Aims of a program's row.
const (
	leastWhole   = 0.99  // of the stacks
	belowPerf    = 0.005 // where perf has less: of what perf has
	depthWithin  = 1     // frames that the medians may be apart
	overlapBelow = 1     // percentage points below what two samples of one distribution have, but for chance
	deviations   = 3     // of chance
)

var sections = []harness.Section[bench]{{
	Name: "stacks", Markers: []string{"native-stacks"}, Plan: planPrograms,
	Aim: "at least 99 % whole, or as many as perf has, median depth within 1 of perf's, as many equal stacks as " +
		"two samples of one distribution have",
}}

func run(ctx context.Context, args []string, out io.Writer) error {
	var o harness.Options
	flags := o.Flags("native", "two programs, for a short time", docs)
	root := flags.String("root", ".", "the root of the repository")
	pattern := flags.String("run", "", "only programs whose names match")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if o.Short && o.Update {
		return errors.New("-update needs long runs: leave out -short")
	}
	chosen, err := regexp.Compile(*pattern)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	page := ""
	if o.Update {
		page = filepath.Join(*root, docs)
	}
	return o.WithAgent(ctx, func(agent profiler.Agent, dir string) error {
		b := bench{agent: agent, dir: dir, short: o.Short, out: out}
		failed, err := harness.Run(ctx, out, b, sections, harness.Choice{Run: chosen, Short: o.Short}, page)
		if err == nil && len(failed) > 0 {
			err = errors.New("stacks of native code are cut, or differ from perf's")
		}
		return err
	})
}

// A result is what was recorded of a program. It is empty if the program is not installed.
type result struct {
	program
	missing bool
	ours    recorded
	perfs   recorded
	// same is the overlap of the stacks, most that of two samples of one distribution, and chance its
	// standard deviation: percent.
	same, most, chance float64
}

func (r result) ok() bool {
	return r.missing || r.ours.whole() >= min(leastWhole, r.perfs.whole()-belowPerf) && abs(r.ours.depth()-r.perfs.depth()) <= depthWithin &&
		r.same >= r.most-overlapBelow-deviations*r.chance
}

func abs(n int) int { return max(n, -n) }

func planPrograms(c harness.Choice) harness.Job[bench] {
	return harness.Trials[bench, program, result]{
		All: programs, Run: harness.OneByOne(bench.compare),
		Tables: func(results []result) []harness.Table {
			table := report.Table{Header: []string{"program", "samples", "whole, %", "depth", "perf: samples", "whole, %", "depth",
				"equal stacks, %", "at most, %", ""}}
			for _, r := range results {
				if r.missing {
					table.Add(r.name, "not installed", "", "", "", "", "", "", "", "-")
					continue
				}
				table.Add(r.name, fmt.Sprint(r.ours.samples), percent(r.ours.whole()), fmt.Sprint(r.ours.depth()),
					fmt.Sprint(r.perfs.samples), percent(r.perfs.whole()), fmt.Sprint(r.perfs.depth()), fmt.Sprintf("%.1f", r.same), fmt.Sprintf("%.1f ± %.1f", r.most, r.chance),
					report.Verdict(r.ok()))
			}
			return []harness.Table{{Marker: "native-stacks", Table: table}}
		},
		OK: func(results []result) bool {
			for _, r := range results {
				if !r.ok() {
					return false
				}
			}
			return true
		},
	}.Plan(c)
}

func percent(share float64) string { return fmt.Sprintf("%.1f", 100*share) }
