package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
	"github.com/vmprof-agent/vmprof-agent/tests/suite"
)

// pairedManner says how often two agents are compared, and for how long each time.
type pairedManner struct {
	rounds int
	length time.Duration
}

var (
	longPaired  = pairedManner{rounds: 8, length: 20 * time.Second}
	shortPaired = pairedManner{rounds: 6, length: 3 * time.Second} // the fewest that give an interval
)

// A pairedLoad is what the machine does while two agents record all of it.
type pairedLoad struct {
	name  string
	rate  int // samples a second of each CPU
	build bool
	after time.Duration // how long the agents have recorded before
}

// String is the load in a table.
func (l pairedLoad) String() string {
	text := fmt.Sprintf("%s, %d Hz", l.name, l.rate)
	if l.after > namingTime {
		text += fmt.Sprintf(", after %v", l.after)
	}
	return text
}

// namingTime is how long the agents name what is running, at least.
const namingTime = time.Second

var pairedLoads = []pairedLoad{
	{name: strings.Join(busyGuests, " and "), rate: busyRate},
	{name: strings.Join(busyGuests, " and "), rate: usualRate},
	{name: strings.Join(busyGuests, " and "), rate: usualRate, after: time.Minute},
	{name: "two compilations of C, again and again", rate: busyRate, build: true},
}

// pairedFigures are what is compared.
var pairedFigures = []struct {
	name string
	of   func(agentCost) float64
	text string // format of a mean
}{
	{"CPU time", func(c agentCost) float64 { return 100 * c.core() }, "%.2f %% of a core"},
	{"peak memory", func(c agentCost) float64 { return float64(c.rss) / (1 << 20) }, "%.0f MB"},
	{"BPF time a sample", func(c agentCost) float64 {
		return harness.Per(float64(c.stats.BPFTime), float64(c.stats.Attempted))
	}, "%.0f ns"},
}

// grew reports whether a version costs clearly more than another one: by more than 30 %, and the
// whole interval says more than 10 %.
func grew(r harness.Ratio) bool {
	const ratio, sure = 1.3, 1.1
	return r.Median > ratio && r.Low > sure
}

// lastRelease builds the agent of the last release, and returns its path; "" if there is no release
// yet.
func lastRelease(ctx context.Context, dir string) (string, error) {
	git := func(args ...string) (string, error) {
		out, err := exec.CommandContext(ctx, "git", args...).Output()
		return strings.TrimSpace(string(out)), err
	}
	root, err := git("rev-parse", "--show-toplevel")
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	tag, err := git("describe", "--tags", "--abbrev=0", "--match=v*")
	if err != nil {
		return "", nil // no tag, or a clone without them
	}
	tree, program := filepath.Join(dir, "release"), filepath.Join(dir, "release-agent")
	if _, err := git("-C", root, "worktree", "add", "--detach", tree, tag); err != nil {
		return "", fmt.Errorf("check out %s: %w", tag, err)
	}
	defer git("-C", root, "worktree", "remove", "--force", tree)
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "./cmd/vmprof-agent")
	build.Dir, build.Env = tree, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", tag, err, out)
	}
	return program, nil
}

// paired has two agents record the same machine at the same time: what else the machine does hits
// both alike, so that their ratio says more than two figures could. Without another agent it is
// this one against itself.
func (b bench) paired(ctx context.Context) ([]harness.Table, error) {
	table := report.Table{Header: []string{"load", "figure", "this agent", "the other", "ratio", "aim: ≤ 1.3"}}
	loads := pairedLoads
	if b.how.cold {
		loads = []pairedLoad{{name: "two of Xalan", rate: busyRate}}
	}
	guests, err := b.startBusy(ctx)
	if err != nil {
		return nil, err
	}
	defer closeAll(guests)
	for _, load := range loads {
		var costs [2][]agentCost
		for range b.how.paired.rounds {
			pair, err := b.pair(ctx, load, guests)
			if err != nil {
				return nil, err
			}
			for i := range pair {
				costs[i] = append(costs[i], pair[i])
			}
		}
		for _, figure := range pairedFigures {
			var ratios []float64
			var sums [2]float64
			for round := range costs[0] {
				this, other := figure.of(costs[0][round]), figure.of(costs[1][round])
				ratios = append(ratios, harness.Per(this, other))
				sums[0], sums[1] = sums[0]+this, sums[1]+other
			}
			n := float64(len(ratios))
			ratio := harness.RatioOf(ratios)
			table.Add(load.String(), figure.name, fmt.Sprintf(figure.text, sums[0]/n),
				fmt.Sprintf(figure.text, sums[1]/n), ratio.String(), report.Verdict(!grew(ratio)))
		}
	}
	return []harness.Table{{Marker: "paired", Table: table}}, nil
}

// pair runs both agents once, and returns what this one and the other used.
func (b bench) pair(ctx context.Context, load pairedLoad, guests []*suite.Guest) (costs [2]agentCost, err error) {
	agents := [2]profiler.Agent{b.agent, {Path: cmp.Or(b.against, b.agent.Path)}}
	var runs [2]*profiler.AgentRun
	first := rand.N(2) // the one that starts later may find names in the page cache
	for _, i := range []int{first, 1 - first} {
		if runs[i], err = agents[i].Start(ctx, profiler.Options{Frequency: load.rate}); err != nil {
			return costs, errors.Join(err, stopRuns(runs[:]))
		}
	}
	for _, run := range runs {
		if err := run.WaitSampling(); err != nil {
			return costs, errors.Join(err, stopRuns(runs[:]))
		}
	}
	work := func(wall time.Duration) error { return runAll(guests, runFor(wall)) }
	if load.build {
		work = compileFor
	}
	if err := work(max(load.after, namingTime)); err != nil {
		return costs, errors.Join(err, stopRuns(runs[:]))
	}
	costs[0], err = during(runs[0], func() (err error) {
		costs[1], err = during(runs[1], func() error { return work(b.how.paired.length) })
		return err
	})
	if err != nil {
		return costs, errors.Join(err, stopRuns(runs[:]))
	}
	for i, run := range runs {
		recording, err := run.Stop()
		if err != nil {
			return costs, err
		}
		costs[i].stats = recording.Stats
	}
	return costs, nil
}

// stopRuns ends those that run, after an error.
func stopRuns(runs []*profiler.AgentRun) (err error) {
	for _, run := range runs {
		if run != nil {
			_, stopped := run.Stop()
			err = errors.Join(err, stopped)
		}
	}
	return err
}

// compiled is a program that takes a compiler some 20 ms.
const compiled = `#include <stdio.h>
int main(int n, char **v) { for (int i = 0; i < n; i++) printf("%s\n", v[i]); return 0; }
`

// compileFor compiles small programs, two at a time, for that long.
func compileFor(wall time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), wall)
	defer cancel()
	results := make(chan error, 2)
	for range cap(results) {
		go func() {
			for ctx.Err() == nil {
				cc := exec.Command("cc", "-x", "c", "-O2", "-c", "-o", "/dev/null", "-")
				cc.Stdin = strings.NewReader(compiled)
				if text, err := cc.CombinedOutput(); err != nil {
					results <- fmt.Errorf("compile: %w\n%s", err, text)
					return
				}
			}
			results <- nil
		}()
	}
	return errors.Join(<-results, <-results)
}
