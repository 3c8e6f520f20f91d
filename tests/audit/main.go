// Command audit measures how often the verdicts of compare are wrong. It uses simulated recordings
// of known differences: programs compared with themselves, and with slower versions. It also uses
// recordings of real programs that are split at random, and guests that run next to each other and
// know how much slower one of them is. It also shows the effect of repeated looks at timings that
// are still being taken, by the rule of Lau, Arnold, Hind and Calder (PACT 2007, section 6.3) and
// by always-valid intervals.
//
//	go run ./tests/audit                       # everything; an hour, of which simulations take five
//	go run ./tests/audit -short                # what CI runs
//	go run ./tests/audit -run 'verdicts|keys|looks|converge'
//	go run ./tests/audit -run '^split, Xalan'
//	go run ./tests/audit -update               # also rewrites the tables in docs/measurements/auditing.md
//
// Seeds of simulations are fixed: every run gives the same tables.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
)

// docs is the page whose tables -update rewrites, from the root of the repository.
const docs = "docs/measurements/auditing.md"

// errWrong says that verdicts are wrong more often than permitted. The tables show which.
var errWrong = errors.New("more verdicts are false than alpha allows")

// A manner is how much to simulate and to record.
type manner struct {
	experiments int // experiments of each row
	seeds       int // seeds of each row of looks
	timings     int // timings of each version in looks, at most

	warmup time.Duration // warm-up of guests
	window time.Duration
	halves int // windows of a side
	duels  int // duels of each row of paced guests
	pairs  int // recordings of each pair
}

var (
	longRun = manner{experiments: 1000, seeds: 200, timings: 100_000, warmup: 3 * time.Second, window: time.Second,
		halves: 60, duels: 3, pairs: 20}
	shortRun = manner{experiments: 60, seeds: 40, timings: 10_000, warmup: time.Second, window: time.Second / 4,
		halves: 20, duels: 1, pairs: 1}
)

// A lab is what the sections share.
type lab struct {
	manner
	agent profiler.Agent
	jdk   jvm.JDK
	out   io.Writer
}

// sections are all measurements, in the order of the documentation.
var sections = []harness.Section[lab]{
	{Name: "verdicts", Markers: []string{"audit-verdicts"}, Aim: "at most alpha of the verdicts false",
		Plan: planOf("verdicts", manner.verdicts)},
	{Name: "keys", Markers: []string{"audit-keys"}, Aim: "at most alpha of the verdicts false",
		Plan: planOf("keys", manner.keys)},
	{Name: "looks", Markers: []string{"audit-looks"}, Aim: "at most alpha of the always-valid verdicts false",
		Plan: planOf("looks", manner.looks)},
	{Name: "converge", Markers: []string{"audit-converge"}, Aim: "at most alpha of the always-valid verdicts false",
		Plan: planOf("converge", manner.converge)},
	{Name: "splits", Markers: []string{"audit-splits"},
		Aim: "at most alpha of the comparisons with a false verdict; 5 % found", Plan: planSplit},
	{Name: "paced", Markers: []string{"audit-paced"}, Aim: "no wrong verdict", Plan: planDuels("audit-paced", paced)},
	{Name: "pairs", Markers: []string{"audit-pairs"}, Aim: "20 of 20 right beyond a ratio of 1.1",
		Plan: planDuels("audit-pairs", pairs)},
}

// planOf is the plan of a section that is measured as a whole.
func planOf(name string, measure func(m manner) harness.Outcome) func(harness.Choice) harness.Job[lab] {
	return func(c harness.Choice) harness.Job[lab] {
		if c.Run != nil && !c.Run.MatchString(name) {
			return harness.Job[lab]{}
		}
		return harness.Job[lab]{Trials: 1, Whole: !c.Short, Run: func(_ context.Context, l lab) (harness.Outcome,
			error) {
			return measure(l.manner), nil
		}}
	}
}

func main() { harness.Main("audit", run) }

func run(ctx context.Context, args []string, out io.Writer) error {
	var o harness.Options
	flags := o.Flags("audit", "fewer experiments", docs)
	pattern := flags.String("run", "", "only sections and trials whose names match")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if o.Short && o.Update {
		return errors.New("-update needs all experiments: leave out -short")
	}
	chosen := harness.Choice{Short: o.Short}
	if *pattern != "" {
		var err error
		if chosen.Run, err = regexp.Compile(*pattern); err != nil {
			return fmt.Errorf("-run: %w", err)
		}
	}
	jdk, err := jvm.Oldest()
	if err != nil {
		return err
	}
	return o.WithAgent(ctx, func(agent profiler.Agent, _ string) error {
		l, page := lab{manner: longRun, agent: agent, jdk: jdk, out: out}, ""
		if o.Short {
			l.manner = shortRun
		}
		if o.Update {
			page = docs
		}
		failed, err := harness.Run(ctx, out, l, sections, chosen, page)
		if err == nil && len(failed) > 0 {
			err = fmt.Errorf("%w: %s", errWrong, strings.Join(failed, ", "))
		}
		return err
	})
}
