package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// planSoon measures how much of the call graph is found soon: Arnold & Grove's table 3 with small
// inputs, which run for one or two seconds. It also measures how much less is found if bursts are
// not weighted by the rate of calls in them. The agent's output has no graph without weights: a
// test of the engine has both.
func planSoon() plan {
	return harness.Trials[meter, soonTrial, soonResult]{
		All: func(short bool) (trials []soonTrial) {
			if short {
				return nil
			}
			for _, program := range guests.VMPrograms() {
				trials = append(trials, soonTrial{program})
			}
			return trials
		},
		Run: func(m meter, ctx context.Context, trials []soonTrial) ([]soonResult, error) {
			if err := m.buildSoon(ctx); err != nil {
				return nil, err
			}
			return harness.OneByOne(meter.recordSoon)(m, ctx, trials)
		},
		Tables: func(results []soonResult) []harness.Table {
			return []harness.Table{{Marker: "calls-soon", Table: soonTable(results)}}
		},
	}.Plan
}

// A soonTrial is a program of the reference guest.
type soonTrial struct{ program string }

// String is the trial's name, which -run matches.
func (t soonTrial) String() string { return callTrial(t.program, "soon") }

// The cells of soonTable: the timer alone, and bursts at the rate that the agent chooses.
const (
	soonTimer  = "1x1"
	soonBursts = "1%"
)

// soonSeconds are the amounts of CPU time after which a graph is compared with the exact one.
var soonSeconds = []string{"1", "2"}

// A soonCell is an overlap in percent, with bursts' weights and without.
type soonCell struct{ weighted, plain float64 }

// A soonResult is the result of a trial, by seconds and cell.
type soonResult struct {
	soonTrial
	edges int
	cells map[[2]string]soonCell
}

func (m meter) soonTest() string { return filepath.Join(m.dir, "page.test") }

// pagePackage is where the engine's test is.
const pagePackage = "github.com/vmprof-agent/vmprof-agent/agent/collect/calls/page"

func (m meter) buildSoon(ctx context.Context) error {
	if output, err := exec.CommandContext(ctx, "go", "test", "-c", "-o", m.soonTest(),
		pagePackage).CombinedOutput(); err != nil {
		return fmt.Errorf("build the test of the engine: %w\n%s", err, output)
	}
	return nil
}

func (m meter) recordSoon(ctx context.Context, t soonTrial) (r soonResult, err error) {
	r = soonResult{soonTrial: t, cells: map[[2]string]soonCell{}}
	for _, seconds := range soonSeconds {
		output, err := exec.CommandContext(ctx, m.soonTest(), "-test.v", "-test.run", "^TestLiveAccuracy$",
			"-programs", t.program, "-cells", soonTimer+","+soonBursts, "-seconds", seconds).CombinedOutput()
		if err != nil {
			return r, fmt.Errorf("%w\n%s", err, output)
		}
		if err := r.read(seconds, output); err != nil {
			return r, fmt.Errorf("%w\n%s", err, output)
		}
	}
	for _, seconds := range soonSeconds {
		timer, bursts := r.cells[[2]string{seconds, soonTimer}], r.cells[[2]string{seconds, soonBursts}]
		fmt.Fprintf(m.out, "%v: after %s s overlap %.1f%% by the timer, %.1f%% by bursts, %.1f%% without weights\n",
			t, seconds, timer.weighted, bursts.weighted, bursts.plain)
	}
	return r, nil
}

// read reads the lines of TestLiveAccuracy for both cells.
func (r *soonResult) read(seconds string, output []byte) error {
	read := 0
	for lines := bufio.NewScanner(bytes.NewReader(output)); lines.Scan(); {
		_, line, found := strings.Cut(lines.Text(), ": "+r.program+" ")
		if !found {
			continue
		}
		cell, rest, _ := strings.Cut(line, ": ")
		var c soonCell
		if _, err := fmt.Sscanf(rest, "overlap %f%% (%f%% without weights)", &c.weighted, &c.plain); err != nil {
			return fmt.Errorf("parse %q: %w", line, err)
		}
		if _, after, found := strings.Cut(rest, " samples, "); found {
			fmt.Sscanf(after, "%d edges", &r.edges)
		}
		r.cells[[2]string{seconds, cell}] = c
		read++
	}
	if read != 2 {
		return fmt.Errorf("the test printed %d results of 2", read)
	}
	return nil
}

// soonTable has a row for each program, and one for the mean.
func soonTable(results []soonResult) report.Table {
	table := report.Table{Header: []string{"program", "edges"}}
	for _, seconds := range soonSeconds {
		table.Header = append(table.Header, seconds+" s: timer", "bursts", "without weights")
	}
	mean := make([]float64, 3*len(soonSeconds))
	for _, r := range results {
		cells := []string{r.program, fmt.Sprint(r.edges)}
		for i, seconds := range soonSeconds {
			timer, bursts := r.cells[[2]string{seconds, soonTimer}], r.cells[[2]string{seconds, soonBursts}]
			for j, v := range []float64{timer.weighted, bursts.weighted, bursts.plain} {
				cells = append(cells, onePlace(v))
				mean[3*i+j] += v / float64(len(results))
			}
		}
		table.Add(cells...)
	}
	cells := []string{"mean", ""}
	for _, v := range mean {
		cells = append(cells, onePlace(v))
	}
	table.Add(cells...)
	return table
}
