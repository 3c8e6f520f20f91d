// Command llvm measures the cost of the loop markers of contrib/llvm in real programs, and their
// treatment by the optimizer: figure 1 of Lau, Arnold, Hind and Calder (PACT 2007), for clang
// instead of their Java compiler. The programs are compiled from the sources of Debian's packages.
// It also compares functions at two levels of optimization while they run, by audit: figures 6 and
// 7.
//
//	go run ./tests/llvm             # five minutes
//	go run ./tests/llvm -short      # one round with little input
//	go run ./tests/llvm -run zlib
//	go run ./tests/llvm -update     # also rewrites the tables in docs/measurements/auditing.md
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// docs is the page whose tables -update rewrites, from the root of the repository.
const docs = "docs/measurements/auditing.md"

// A bench has what the section needs.
type bench struct {
	*compiler
	root   string // root of the repository
	input  string
	rounds int
	agent  profiler.Agent
	length string // length of an audit, seconds
	out    io.Writer
}

var sections = []harness.Section[bench]{
	{Name: "markers", Markers: []string{"audit-markers", "audit-marker-sites"}, Aim: "removed markers cost nothing",
		Plan: planMarkers},
	{Name: "speedups", Markers: []string{"audit-speedups", "audit-scores"}, Aim: "the direction of each speed-up",
		Plan: planSpeedups},
}

func main() { harness.Main("llvm", run) }

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("llvm", flag.ContinueOnError)
	short := flags.Bool("short", false, "one round with little input")
	update := flags.Bool("update", false, "rewrite the tables in "+docs)
	root := flags.String("root", ".", "the root of the repository")
	pattern := flags.String("run", "", "only programs whose names match")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *short && *update {
		return errors.New("-update needs long runs: leave out -short")
	}
	chosen, err := regexp.Compile(*pattern)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	dir, err := os.MkdirTemp("", "vmprof-llvm-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	c, err := newCompiler(ctx, *root, dir)
	if err != nil {
		return err
	}
	agent, err := profiler.Build(ctx, dir)
	if err != nil {
		return err
	}
	b := bench{compiler: c, root: *root, input: filepath.Join(dir, "input"), rounds: 9, agent: agent, length: "10",
		out: out}
	words, page := 1_500_000, ""
	if *short {
		b.rounds, b.length, words = 1, "5", 20_000
	}
	if *update {
		page = docs
	}
	if err := writeInput(b.input, words); err != nil {
		return err
	}
	_, err = harness.Run(ctx, out, b, sections, harness.Choice{Run: chosen, Short: *short}, page)
	return err
}

// String is the trial's name.
func (p program) String() string { return p.name }

// variants are the ways to compile a program: the control is without markers, like the base of all
// comparisons.
var variants = []struct{ name, markers string }{
	{"control", ""},
	{"added to loops and removed", "remove"},
	{"added to blocks and removed", "remove,blocks"},
	{"loops, counting in memory", "count"},
	{"blocks, counting in memory", "count,blocks"},
	{"loops, empty timing points", "time"},
	{"loops, empty timing points, naïve", "naive"},
}

// A result is of one program.
type result struct {
	program
	ratios        []harness.Ratio // by variant
	loops, blocks account
}

func planMarkers(c harness.Choice) harness.Job[bench] {
	return harness.Trials[bench, program, result]{
		All: func(bool) []program { return programs() }, Run: harness.OneByOne(bench.markers),
		Tables: func(results []result) []harness.Table {
			times := report.Table{Header: []string{"user time, by that without markers"}}
			sites := report.Table{Header: []string{"program", "markers in", "inserted", "kept", "merged",
				"removed by the optimizer", "lost", "sites", "by one", "by another constant", "by a variable",
				"of these in memory"}}
			for _, r := range results {
				times.Header = append(times.Header, r.name)
				for _, a := range []struct {
					what string
					account
				}{{"loops", r.loops}, {"blocks", r.blocks}} {
					row := []string{r.name, a.what}
					for _, n := range []int{a.Inserted, a.Kept, a.Merged, a.Removed, a.Lost, a.Sites, a.Ones,
						a.Constants, a.Variables, a.Memory} {
						row = append(row, strconv.Itoa(n))
					}
					sites.Add(row...)
				}
			}
			for i, v := range variants {
				row := []string{v.name}
				for _, r := range results {
					row = append(row, r.ratios[i].String())
				}
				times.Add(row...)
			}
			return []harness.Table{{Marker: "audit-markers", Table: times},
				{Marker: "audit-marker-sites", Table: sites}}
		},
	}.Plan(c)
}

// markers compiles a program in all ways and runs each in turn, next to one without markers.
func (b bench) markers(ctx context.Context, p program) (r result, err error) {
	r.program = p
	plain, err := p.build(ctx, b.compiler, b.root, "plain", "", false)
	if err != nil {
		return r, err
	}
	built := make([]string, len(variants))
	for i, v := range variants {
		markers, stats := v.markers, filepath.Join(b.dir, p.name+"-stats-"+strconv.Itoa(i))
		if markers != "" {
			markers += ",stats=" + stats
		}
		if built[i], err = p.build(ctx, b.compiler, b.root, strconv.Itoa(i), markers, false); err != nil {
			return r, err
		}
		var a *account
		switch v.markers {
		case "remove":
			a = &r.loops
		case "remove,blocks":
			a = &r.blocks
		default:
			continue
		}
		if *a, err = readAccount(stats); err != nil {
			return r, err
		}
	}
	ratios := make([][]float64, len(variants))
	for range b.rounds {
		for i := range variants {
			// Without, with, with, without: linear drift cancels out.
			var cpu [4]float64
			var output [4]string
			for turn, path := range []string{plain, built[i], built[i], plain} {
				one, err := p.run(ctx, path, b.input)
				if err != nil {
					return r, err
				}
				cpu[turn], output[turn] = one.cpu.Seconds(), one.output
			}
			if output[1] != output[0] || output[2] != output[0] {
				return r, fmt.Errorf("%s, %s: markers change its output", p.name, variants[i].name)
			}
			ratios[i] = append(ratios[i], harness.Per(cpu[1]+cpu[2], cpu[0]+cpu[3]))
		}
	}
	for i := range variants {
		r.ratios = append(r.ratios, harness.RatioOf(ratios[i]))
		fmt.Fprintf(b.out, "%s, %s: %v\n", p.name, variants[i].name, r.ratios[i])
	}
	return r, nil
}
