package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// What the agent may use while nothing runs: a part of a CPU, and wakings of its threads a second.
const (
	idleCoreAim  = 0.0005
	idleWakesAim = 5
)

// An idleManner says for how long the agent is left alone, and then observed.
type idleManner struct{ settle, observe time.Duration }

var (
	longIdle  = idleManner{settle: 40 * time.Second, observe: time.Minute}
	shortIdle = idleManner{settle: time.Second, observe: 2 * time.Second}
)

// idlers are the flags of recordings of the whole machine.
var idlers = []string{"-e cpu", "-e cpu --clock=tick", "-e cpu,wall,alloc,lock"}

// An idleCost is what the agent used while nothing ran.
type idleCost struct {
	cpu, wall time.Duration
	wakes     uint64 // how often its threads were woken
}

// idle records the whole machine while this command waits.
func (b bench) idle(ctx context.Context) ([]harness.Table, error) {
	var costs []idleCost
	for _, flags := range idlers {
		var cost idleCost
		_, err := b.agent.While(ctx, profiler.Options{Extra: strings.Fields(flags)}, (*profiler.AgentRun).WaitAttached,
			func(run *profiler.AgentRun) (err error) {
				time.Sleep(b.how.idle.settle) // The agent wakes less and less often.
				cost, err = idleDuring(run.PID(), b.how.idle.observe)
				return err
			})
		if err != nil {
			return nil, fmt.Errorf("record with %s: %w", flags, err)
		}
		costs = append(costs, cost)
	}
	return []harness.Table{{Marker: "idle", Table: idleTable(costs)}}, nil
}

// idleDuring returns what a process uses in that time.
func idleDuring(pid int, observe time.Duration) (c idleCost, err error) {
	before, ok := proc.CPUTime(pid)
	waited, err := waits(pid)
	if err != nil {
		return c, err
	}
	began := time.Now()
	time.Sleep(observe)
	c.wall = time.Since(began)
	after, there := proc.CPUTime(pid)
	if !ok || !there {
		return c, errors.New("the agent has ended")
	}
	c.cpu = after - before
	now, err := waits(pid)
	for tid, n := range now {
		c.wakes += n - waited[tid]
	}
	return c, err
}

// waits returns how often each thread of a process has waited until now. It was woken as often.
func waits(pid int) (map[int]uint64, error) {
	threads, err := procfs.AllThreads(pid)
	if err != nil {
		return nil, fmt.Errorf("list the agent's threads: %w", err)
	}
	waited := map[int]uint64{}
	for _, thread := range threads {
		status, err := thread.NewStatus()
		if err != nil {
			continue // it has ended
		}
		waited[thread.PID] = status.VoluntaryCtxtSwitches
	}
	return waited, nil
}

func idleTable(costs []idleCost) report.Table {
	table := report.Table{Header: []string{"nothing runs", "agent, % of a core", "aim", "", "wakings of threads a second",
		"aim", ""}}
	for i, c := range costs {
		core := harness.Per(float64(c.cpu), float64(c.wall))
		wakes := float64(c.wakes) / c.wall.Seconds()
		table.Add(idlers[i], fmt.Sprintf("%.3f", 100*core), fmt.Sprintf("≤ %.2f", 100*idleCoreAim),
			report.Verdict(core <= idleCoreAim), fmt.Sprintf("%.1f", wakes), fmt.Sprintf("≤ %d", idleWakesAim),
			report.Verdict(wakes <= idleWakesAim))
	}
	return table
}
