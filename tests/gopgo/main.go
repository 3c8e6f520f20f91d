// Command gopgo compares what the Go compiler makes of a profile of the agent with what it makes of
// one of the Go runtime, which were taken of the same run: the calls that it inlines because they
// are hot, and those that it makes direct; and how much faster the programs become. A second run
// with the runtime's profiler shows how much two profiles of one program differ anyway.
//
//	go run ./tests/gopgo             # twelve minutes, half of it in the compiler
//	go run ./tests/gopgo -short      # one program, without the compiler
//	go run ./tests/gopgo -run json
//	go run ./tests/gopgo -update     # also rewrites the tables in docs/measurements/go-programs.md
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

// docs is the page whose tables -update rewrites, from the root of the repository.
const docs = "docs/measurements/go-programs.md"

func main() { harness.Main("gopgo", run) }

// A bench has what the sections need.
type bench struct {
	agent  profiler.Agent
	dir    string
	root   string // root of the repository
	inputs []string
	short  bool
	out    io.Writer
}

// A program is a guest in guests/.
type program struct{ name, what string }

// String is the trial's name.
func (p program) String() string { return p.name }

func programs(short bool) []program {
	all := []program{
		{"format", "go/format over packages of the standard library"},
		{"templates", "html/template: pages that list these"},
		{"json", "encoding/json: their tokens written and read"},
	}
	if short {
		return all[:1]
	}
	return all
}

var sections = []harness.Section[bench]{
	{Name: "programs", Markers: []string{"gopgo-calls", "gopgo-speed"},
		Aim: "the compiler makes the same of both profiles", Plan: planPrograms},
}

func run(ctx context.Context, args []string, out io.Writer) error {
	var o harness.Options
	flags := o.Flags("gopgo", "one program, without compiling it anew", docs)
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
	return o.WithAgent(ctx, func(agent profiler.Agent, dir string) error {
		b := bench{agent: agent, dir: dir, root: *root, short: o.Short, out: out}
		goroot, err := b.goCommand(ctx, "env", "GOROOT")
		if err != nil {
			return err
		}
		if b.inputs, err = filepath.Glob(filepath.Join(goroot, "src/go/*/*.go")); err != nil || len(b.inputs) == 0 {
			return fmt.Errorf("no sources of Go in %s: %w", goroot, err)
		}
		page := ""
		if o.Update {
			page = filepath.Join(*root, docs)
		}
		failed, err := harness.Run(ctx, out, b, sections, harness.Choice{Run: chosen, Short: o.Short}, page)
		if err == nil && len(failed) > 0 {
			err = errors.New("the profiles differ by more than two of the Go runtime do")
		}
		return err
	})
}

// A result is of one program.
type result struct {
	program
	samples, runtime int // in the profiles of the agent and of the runtime
	weights, again   float64
	inlined, direct  agreement
	speed            [2]harness.Ratio // by that of the plain build: of the agent's profile, and of the runtime's
}

func planPrograms(c harness.Choice) harness.Job[bench] {
	return harness.Trials[bench, program, result]{
		All: programs, Run: harness.OneByOne(bench.compare),
		Tables: func(results []result) []harness.Table {
			calls := report.Table{Header: []string{"program", "samples, agent", "samples, runtime", "same weights, %",
				"runtime again, %",
				"inlined, agent", "inlined, runtime", "of these by the agent's, %", "by the runtime's again, %",
				"direct, agent", "direct, runtime", "of these by the agent's, %", "by the runtime's again, %"}}
			speed := report.Table{Header: []string{"program", "work", "agent's profile", "runtime's profile"}}
			for _, r := range results {
				row := []string{r.name, fmt.Sprint(r.samples), fmt.Sprint(r.runtime), percent(r.weights),
					percent(r.again)}
				calls.Add(append(append(row, r.inlined.cells()...), r.direct.cells()...)...)
				speed.Add(r.name, r.what, r.speed[0].String(), r.speed[1].String())
			}
			return []harness.Table{{Marker: "gopgo-calls", Table: calls}, {Marker: "gopgo-speed", Table: speed}}
		},
	}.Plan(c)
}

func percent(share float64) string { return fmt.Sprintf("%.0f", 100*share) }
