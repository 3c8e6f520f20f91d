// Command audit measures how often the verdicts of compare are wrong, on simulated recordings whose difference is known:
// programs that are compared with themselves, and with versions that are slower. It also shows what comes of looking again and
// again at timings that are still being taken, by the rule of Lau, Arnold, Hind and Calder (CGO 2009, section 6.3) and by
// always-valid intervals.
//
//	go run ./tests/audit            # two minutes
//	go run ./tests/audit -short     # what CI runs
//	go run ./tests/audit -update    # also rewrites the tables in docs/auditing.md
//
// Seeds are fixed: every run gives the same tables.
package main

import (
	"context"
	"errors"
	"flag"
	"io"

	"github.com/vmprof-agent/vmprof-agent/tests/harness"
)

// docs is the page whose tables -update rewrites, from the root of the repository.
const docs = "docs/auditing.md"

// errWrong says that verdicts are wrong more often than they may be. The tables say which.
var errWrong = errors.New("more verdicts are false than alpha allows")

// A manner says how much to simulate.
type manner struct {
	experiments int // of each row
	seeds       int // of each row of looks
	timings     int // of each version in looks, at most
}

var (
	longRun  = manner{experiments: 1000, seeds: 200, timings: 100_000}
	shortRun = manner{experiments: 60, seeds: 100, timings: 10_000}
)

// sections are all that is measured, in the order of the documentation.
var sections = []harness.Section[manner]{
	{Name: "verdicts", Markers: []string{"audit-verdicts"}, Aim: "at most alpha of the verdicts false", Plan: planOf(manner.verdicts)},
	{Name: "keys", Markers: []string{"audit-keys"}, Aim: "at most alpha of the verdicts false", Plan: planOf(manner.keys)},
	{Name: "looks", Markers: []string{"audit-looks"}, Aim: "at most alpha of the always-valid verdicts false", Plan: planOf(manner.looks)},
}

// planOf is the plan of a section that is measured as a whole.
func planOf(measure func(m manner) harness.Outcome) func(harness.Choice) harness.Job[manner] {
	return func(c harness.Choice) harness.Job[manner] {
		return harness.Job[manner]{Trials: 1, Whole: !c.Short, Run: func(_ context.Context, m manner) (harness.Outcome, error) {
			return measure(m), nil
		}}
	}
}

func main() { harness.Main("audit", run) }

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("audit", flag.ContinueOnError)
	short := flags.Bool("short", false, "fewer experiments")
	update := flags.Bool("update", false, "rewrite the tables in "+docs)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *short && *update {
		return errors.New("-update needs all experiments: leave out -short")
	}
	m, page := longRun, ""
	if *short {
		m = shortRun
	}
	if *update {
		page = docs
	}
	ok, err := harness.Run(ctx, out, m, sections, harness.Choice{Short: *short}, page)
	if err == nil && !ok {
		err = errWrong
	}
	return err
}
