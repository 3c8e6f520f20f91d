package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/view/advise/hotspot"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
	"github.com/vmprof-agent/vmprof-agent/tests/suite"
)

// programs are those of the suite that get advice.
var programs = []string{"Xalan", "Xerces", "Jython", "H2", "Luindex", "Javac"}

func marker(program string) string { return "advise-" + strings.ToLower(program) }

const (
	programRecord = 10 * time.Second
	programTurn   = time.Second / 2 // turn of a JVM, at least; whole iterations
	programTurns  = 3               // turns of each JVM in a round
	// warmups is the part of a program's warm-up that JVMs get which are measured: all alike, and
	// soon replaced by others.
	warmups = 3
	// programRounds is how often new JVMs are started: what C2 makes of a program differs from one
	// JVM to the next.
	programRounds = 6
)

// A programTrial is a program of the suite.
type programTrial string

func (t programTrial) String() string { return string(t) }

type programResult struct {
	program string
	plan    *hotspot.Plan
	ratios  map[side][]float64 // CPU time of an iteration by that of plain, one for each round
}

func planProgram(program string) func(harness.Choice) harness.Job[lab] {
	return harness.Trials[lab, programTrial, programResult]{
		All: func(short bool) []programTrial {
			if short {
				return nil
			}
			return []programTrial{programTrial(program)}
		},
		Run: harness.OneByOne(lab.program),
		Tables: func(results []programResult) []harness.Table {
			return []harness.Table{{Marker: marker(program), Table: programTable(results[0])}}
		},
	}.Plan
}

// program records a program, and measures each piece of advice on its own.
func (l lab) program(ctx context.Context, t programTrial) (programResult, error) {
	r := programResult{program: string(t), ratios: map[side][]float64{}}
	jdk := l.jdks[0]
	one, err := suite.Start(ctx, jdk, r.program)
	if err != nil {
		return r, err
	}
	defer one.Close()
	if _, err := one.Run(one.Warmup()); err != nil {
		return r, err
	}
	if r.plan, err = l.record(ctx, one.PID(), func() error {
		_, err := one.RunFor(programRecord)
		return err
	}); err != nil {
		return r, err
	}
	if err := r.plan.WriteText(l.out, hotspot.DirectivesFile, "directives.json"); err != nil {
		return r, err
	}
	if err := one.Close(); err != nil {
		return r, err
	}
	if len(r.plan.Advice) == 0 {
		return r, nil
	}
	flags := map[side][]string{plain: nil, control: nil}
	for i, a := range r.plan.Advice {
		if flags[hinted+side(i)], err = l.hints(fmt.Sprintf("%s-%d", r.program, i), a); err != nil {
			return r, err
		}
	}
	for range programRounds {
		if err := l.round(ctx, &r, flags); err != nil {
			return r, err
		}
	}
	return r, nil
}

// round starts new JVMs, and has them work in turns.
func (l lab) round(ctx context.Context, r *programResult, flags map[side][]string) error {
	sides := make([]*suite.Guest, len(flags))
	errs := make([]error, len(flags))
	defer func() {
		for _, g := range sides {
			if g != nil {
				g.Close()
			}
		}
	}()
	var wg sync.WaitGroup
	for i := range sides {
		wg.Go(func() {
			if sides[i], errs[i] = suite.Start(ctx, l.jdks[0], r.program, flags[side(i)]...); errs[i] == nil {
				_, errs[i] = sides[i].Run(max(sides[i].Warmup()/warmups, 1))
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	spent, iterations := make([]time.Duration, len(sides)), make([]int, len(sides))
	for turn := range programTurns * len(sides) {
		i := turn % len(sides)
		for until := time.Now().Add(programTurn); time.Now().Before(until); {
			ran, err := sides[i].Run(1)
			if err != nil {
				return err
			}
			spent[i], iterations[i] = spent[i]+ran[0].CPU, iterations[i]+1
		}
	}
	each := func(i side) float64 { return spent[i].Seconds() / float64(iterations[i]) }
	for i := range sides {
		if s := side(i); s != plain {
			r.ratios[s] = append(r.ratios[s], each(s)/each(plain))
		}
	}
	return nil
}

func programTable(r programResult) report.Table {
	table := report.Table{Header: []string{r.program, "because", "CPU time with by without", "control",
		"expected at most"}}
	for i, a := range r.plan.Advice {
		table.Add(describe(&a), a.Reason, harness.RatioOf(r.ratios[hinted+side(i)]).String(),
			harness.RatioOf(r.ratios[control]).String(), expected(a.AtMost))
	}
	if len(r.plan.Advice) == 0 {
		table.Add("no advice", "", "", "", "")
	}
	return table
}

// expected is what advice may save, as a cell.
func expected(share float64) string {
	if share != share {
		return "-"
	}
	return fmt.Sprintf("-%.1f %%", 100*share)
}
