package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls/counters"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
	"github.com/vmprof-agent/vmprof-agent/tests/suite"
)

// exactFlags are those that --exact asks for.
var exactFlags = []string{"-XX:+DTraceMethodProbes", "-XX:C1MaxInlineSize=0"}

// exactPrograms have inputs so small that all calls of an iteration can be counted.
var exactPrograms = []string{"Xerces", "Jython", "Work"}

// An exactCost is what an iteration takes of CPU time while every call is counted.
type exactCost struct {
	program         string
	plain           time.Duration // without the flags
	flags           time.Duration // with them, and nobody who counts
	contexts, edges time.Duration // while calls are counted

	counterFlags time.Duration // with the flags of --exact=counters, and nobody who reads
	counters     time.Duration // while the counters are read
}

// exact measures programs while all of their calls are counted. Factors are so large that one
// iteration tells them.
func (b bench) exact(ctx context.Context) ([]harness.Table, error) {
	programs, iterations := exactPrograms, 20
	if b.how.cold {
		programs, iterations = programs[:1], 1
	}
	var costs []exactCost
	for _, program := range programs {
		c, err := b.exactOf(ctx, program, iterations)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", program, err)
		}
		costs = append(costs, c)
	}
	return []harness.Table{{Marker: "exact", Table: exactTable(costs)}}, nil
}

func (b bench) exactOf(ctx context.Context, program string, iterations int) (c exactCost, err error) {
	c.program = program
	if c.plain, err = b.plainly(ctx, program, iterations); err != nil {
		return c, err
	}
	guest, err := suite.StartSmall(ctx, b.jdk, program, exactFlags...)
	if err != nil {
		return c, err
	}
	defer guest.Close()
	if _, err := guest.Run(iterations); err != nil { // until it is compiled
		return c, err
	}
	if c.flags, err = each(guest, iterations); err != nil {
		return c, err
	}
	if c.contexts, err = b.counting(ctx, guest, "contexts", 1); err != nil {
		return c, err
	}
	if c.edges, err = b.counting(ctx, guest, "edges", 1); err != nil {
		return c, err
	}
	return c, b.countersOf(ctx, &c, iterations)
}

// countersOf measures the JVM's own counters.
func (b bench) countersOf(ctx context.Context, c *exactCost, iterations int) error {
	guest, err := suite.StartSmall(ctx, b.jdk, c.program, strings.Fields(counters.Flags)...)
	if err != nil {
		return err
	}
	defer guest.Close()
	if _, err := guest.Run(10 * iterations); err != nil { // until it is compiled
		return err
	}
	if c.counterFlags, err = each(guest, 10*iterations); err != nil {
		return err
	}
	c.counters, err = b.counting(ctx, guest, "counters", 10*iterations)
	return err
}

// counting is what an iteration takes while calls are counted.
func (b bench) counting(
	ctx context.Context, guest *suite.Guest, mode string, iterations int,
) (cost time.Duration, err error) {
	_, err = b.agent.While(ctx, profiler.Options{PID: guest.PID(), Extra: []string{"-e", "calls", "--exact=" + mode}},
		(*profiler.AgentRun).WaitAttached, func(*profiler.AgentRun) error {
			var err error
			cost, err = each(guest, iterations)
			return err
		})
	return cost, err
}

// plainly is what an iteration takes in a JVM without flags.
func (b bench) plainly(ctx context.Context, program string, iterations int) (time.Duration, error) {
	guest, err := suite.StartSmall(ctx, b.jdk, program)
	if err != nil {
		return 0, err
	}
	defer guest.Close()
	if _, err := guest.Run(10 * iterations); err != nil { // until it is compiled
		return 0, err
	}
	return each(guest, 10*iterations)
}

// each is the CPU time of an iteration, on average: one alone may take less than the clock's
// resolution.
func each(guest *suite.Guest, iterations int) (time.Duration, error) {
	ran, err := guest.Run(iterations)
	if err != nil {
		return 0, err
	}
	var sum time.Duration
	for _, i := range ran {
		sum += i.CPU
	}
	if sum == 0 {
		return 0, fmt.Errorf("%d iterations took no CPU time", iterations)
	}
	return sum / time.Duration(iterations), nil
}

func exactTable(costs []exactCost) report.Table {
	table := report.Table{Header: []string{"program", "CPU time of an iteration", "with the probes' flags", "`--exact`",
		"`--exact=edges`",
		"with the counters' flags", "`--exact=counters`"}}
	for _, c := range costs {
		times := func(format string, d time.Duration) string {
			return fmt.Sprintf("× "+format, float64(d)/float64(c.plain))
		}
		table.Add(c.program, fmt.Sprintf("%.2f ms", 1e3*c.plain.Seconds()), times("%.0f", c.flags),
			times("%.0f", c.contexts), times("%.0f", c.edges),
			times("%.1f", c.counterFlags), times("%.1f", c.counters))
	}
	return table
}
