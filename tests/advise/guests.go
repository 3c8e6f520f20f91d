package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/view/advise/hotspot"
	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// aim is how many times as fast a guest is to be with the hints.
const aim = 1.5

const (
	guestWarmup = 2 * time.Second
	guestRecord = 6 * time.Second
	guestTurn   = time.Second / 2
	guestRounds = 6
)

// A guestTrial is a guest that is known to gain from hints.
type guestTrial struct {
	program string
	jdk     jvm.JDK
}

func (t guestTrial) String() string { return fmt.Sprintf("guests, %s, %s", t.program, t.jdk) }

type guestResult struct {
	guestTrial
	plan              *hotspot.Plan
	without, with     harness.Ratio // ns a call
	ratio, controlled harness.Ratio
	advice            string
}

func planGuests(jdks []jvm.JDK) func(harness.Choice) harness.Job[lab] {
	return harness.Trials[lab, guestTrial, guestResult]{
		All: func(bool) (all []guestTrial) {
			for _, program := range []string{"Beyond", "Majority"} {
				for _, jdk := range jdks {
					all = append(all, guestTrial{program, jdk})
				}
			}
			return all
		},
		Run: harness.OneByOne(lab.guest),
		Tables: func(results []guestResult) []harness.Table {
			return []harness.Table{{Marker: "advise-guests", Table: guestTable(results)}}
		},
		OK: func(results []guestResult) bool {
			for _, r := range results {
				if !(r.ratio.Median >= aim) {
					return false
				}
			}
			return true
		},
	}.Plan
}

// guest records a guest, and has JVMs with and without the hints work in turns.
func (l lab) guest(ctx context.Context, t guestTrial) (guestResult, error) {
	r := guestResult{guestTrial: t}
	classes, err := guests.Compile(ctx, l.jdks[0])
	if err != nil {
		return r, err
	}
	start := func(flags ...string) (*jvm.Guest, error) {
		g, err := jvm.Start(ctx, jvm.Command{JDK: t.jdk, Flags: flags, Classpath: []string{classes}, Main: "guest." +
			t.program})
		if err == nil {
			_, err = nanoseconds(g, guestWarmup)
		}
		return g, err
	}
	one, err := start()
	if err != nil {
		return r, err
	}
	defer one.Close()
	if r.plan, err = l.record(ctx, one.PID(), func() error {
		_, err := nanoseconds(one, guestRecord)
		return err
	}); err != nil {
		return r, err
	}
	if len(r.plan.Advice) == 0 {
		r.advice = "none"
		return r, nil
	}
	flags, err := l.hints(t.program, r.plan.Advice...)
	if err != nil {
		return r, err
	}
	for _, a := range r.plan.Advice {
		r.advice = strings.TrimPrefix(r.advice+"; "+describe(&a), "; ")
	}
	sides := map[side]*jvm.Guest{plain: one}
	for s, extra := range map[side][]string{control: nil, hinted: flags} {
		g, err := start(extra...)
		if err != nil {
			return r, err
		}
		defer g.Close()
		sides[s] = g
	}
	rounds := guestRounds
	if l.short {
		rounds = 2
	}
	turns, err := harness.Alternate(harness.Rotated(rounds, []side{control, hinted}),
		func() (float64, error) { return nanoseconds(one, guestTurn) },
		func(s side) (float64, error) { return nanoseconds(sides[s], guestTurn) }, nil)
	if err != nil {
		return r, err
	}
	same := func(ns float64) float64 { return ns }
	speed := func(s side) harness.Ratio {
		over, _ := turns.Ratios(s, same)
		for i := range over {
			over[i] = 1 / over[i]
		}
		return harness.RatioOf(over)
	}
	r.ratio, r.controlled, r.without = speed(hinted), speed(control), harness.RatioOf(turns.Off)
	var with []float64
	for _, turn := range turns.On {
		if turn.Kind == hinted {
			with = append(with, turn.Sample)
		}
	}
	r.with = harness.RatioOf(with)
	return r, nil
}

// nanoseconds has a guest work for so long, and returns what a call took by its own clock of CPU
// time.
func nanoseconds(g *jvm.Guest, d time.Duration) (ns float64, err error) {
	lines, err := g.Order(fmt.Sprintf("run %d", d.Milliseconds()))
	if err != nil {
		return 0, err
	}
	if _, err := fmt.Sscanf(strings.Join(lines, "\n"), "ns %g", &ns); err != nil {
		return 0, fmt.Errorf("the guest answered %q: %w", lines, err)
	}
	return ns, nil
}

func guestTable(results []guestResult) report.Table {
	table := report.Table{Header: []string{"guest", "JDK", "advice", "ns a call without", "with", "times as fast",
		"control"}}
	for _, r := range results {
		if r.advice == "none" {
			table.Add(r.program, r.jdk.String(), r.advice, "", "", "", "")
			continue
		}
		table.Add(r.program, r.jdk.String(), r.advice, fmt.Sprintf("%.2f", r.without.Median),
			fmt.Sprintf("%.2f", r.with.Median), r.ratio.String(), r.controlled.String())
	}
	return table
}

// describe is a piece of advice in a cell of a table.
func describe(a *hotspot.Advice) string {
	name := func(system string) string {
		system, _, _ = strings.Cut(system, "(")
		return system
	}
	switch a.Kind {
	case hotspot.Guard:
		return fmt.Sprintf("`TypeProfileMajorReceiverPercent=%d`", a.Percent)
	case hotspot.DontInline:
		return fmt.Sprintf("`dontinline %s`", name(a.Callee))
	}
	return fmt.Sprintf("`inline %s`", name(a.Callee))
}
