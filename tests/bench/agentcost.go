package main

import (
	"context"
	"fmt"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
)

// rssAim is how much memory the agent may ever have had, in bytes.
const rssAim = 50 << 20

// An agentCost is what the agent used while a guest ran a segment.
type agentCost struct {
	wall  time.Duration // wall time of the segment
	cpu   time.Duration // in it: start, symbolisation and end are not
	rss   uint64        // the most at its end, and so with its method map
	stats profiler.Stats
}

// watch has the agent record while work is done, and returns what it used meanwhile. Before, once
// it is ready, it watches warmUp, unless that is nil: its start, the names that it looks up first,
// and its end are no part of the cost.
func (b bench) watch(
	ctx context.Context, o profiler.Options, ready func(*profiler.AgentRun) error, warmUp, work func() error,
) (cost agentCost, recording *profiler.Recording, err error) {
	recording, err = b.agent.While(ctx, o, ready, func(run *profiler.AgentRun) error {
		if warmUp != nil {
			if err := warmUp(); err != nil {
				return err
			}
		}
		var err error
		cost, err = during(run, work)
		return err
	})
	if err != nil {
		return agentCost{}, nil, err
	}
	cost.stats = recording.Stats
	return cost, recording, nil
}

// during returns what the agent used while something else was done.
func during(run *profiler.AgentRun, do func() error) (agentCost, error) {
	before, err := run.Usage()
	if err != nil {
		return agentCost{}, err
	}
	began := time.Now()
	if err := do(); err != nil {
		return agentCost{}, err
	}
	wall := time.Since(began)
	after, err := run.Usage()
	if err != nil {
		return agentCost{}, err
	}
	return agentCost{wall: wall, cpu: after.CPU - before.CPU, rss: after.RSS}, nil
}

// add adds up what can be, and keeps the most memory.
func (c *agentCost) add(other agentCost) {
	c.wall += other.wall
	c.cpu += other.cpu
	c.rss = max(c.rss, other.rss, other.stats.RSSBytes)
	c.stats.Attempted += other.stats.Attempted
	c.stats.Delivered += other.stats.Delivered
	c.stats.JavaSamples += other.stats.JavaSamples
	c.stats.JavaFrames += other.stats.JavaFrames
	c.stats.BPFTime += other.stats.BPFTime
	c.stats.BPFJavaTime += other.stats.BPFJavaTime
	c.stats.RingBytes += other.stats.RingBytes
}

// core is the part of one CPU that the agent used.
func (c agentCost) core() float64 { return harness.Per(float64(c.cpu), float64(c.wall)) }

func megabytes(bytes uint64) string { return fmt.Sprintf("%.0f", float64(bytes)/(1<<20)) }
