package main

import (
	"context"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/suite"
)

// A segment is what a guest used for a fixed number of iterations, and who watched it.
type segment struct {
	watcher watcher
	cpu     time.Duration // of the guest
	agent   agentCost     // zero unless the agent watched
}

type watcher int

const (
	nobody watcher = iota
	byAgent
	byPerf
)

// An agentCost is what the agent used while a guest ran a segment.
type agentCost struct {
	wall  time.Duration // of the segment
	cpu   time.Duration // in it: start, symbolisation and end are not
	rss   uint64        // the most at its end, and so with its method map
	stats profiler.Stats
}

// segments runs off, agent, off, perf, off, agent ... beside one guest, and ends with off: each watched segment stands
// between two that are not. The machine's drift then hits all alike.
func (b bench) segments(ctx context.Context, guest *suite.Guest, iterations, rate int) ([]segment, error) {
	var all []segment
	for round := range b.how.rounds {
		first, second := byAgent, byPerf
		if round%2 == 1 {
			first, second = second, first
		}
		for _, w := range []watcher{nobody, first, nobody, second} {
			s, err := b.segment(ctx, guest, w, iterations, rate)
			if err != nil {
				return nil, err
			}
			all = append(all, s)
		}
	}
	last, err := b.segment(ctx, guest, nobody, iterations, rate)
	return append(all, last), err
}

func (b bench) segment(ctx context.Context, guest *suite.Guest, w watcher, iterations, rate int) (segment, error) {
	options := profiler.Options{PID: guest.PID(), Frequency: rate}
	s := segment{watcher: w}
	var err error
	switch w {
	case nobody:
		s.cpu, err = cpuOf(guest, iterations)
	case byPerf:
		var perf *profiler.PerfRun
		if perf, err = profiler.StartPerf(ctx, options); err != nil {
			return s, err
		}
		if err = perf.WaitSampling(); err != nil {
			return s, err
		}
		if s.cpu, err = cpuOf(guest, iterations); err != nil {
			return s, err
		}
		err = perf.Stop()
	case byAgent:
		s.cpu, s.agent, err = b.watched(ctx, guest, iterations, options)
	}
	return s, err
}

// watched runs a segment under the agent.
func (b bench) watched(ctx context.Context, guest *suite.Guest, iterations int, o profiler.Options) (time.Duration, agentCost, error) {
	run, err := b.agent.Start(ctx, o)
	if err != nil {
		return 0, agentCost{}, err
	}
	if err := run.WaitSampling(); err != nil {
		return 0, agentCost{}, err
	}
	var cost agentCost
	var cpu time.Duration
	if cost, err = during(run, func() error {
		cpu, err = cpuOf(guest, iterations)
		return err
	}); err != nil {
		return 0, agentCost{}, err
	}
	recording, err := run.Stop()
	if err != nil {
		return 0, agentCost{}, err
	}
	if err := recording.Stats.CheckIdentities(); err != nil {
		return 0, agentCost{}, err
	}
	cost.stats = recording.Stats
	return cpu, cost, nil
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

// cpuOf runs iterations and returns the CPU time that the guest used meanwhile.
func cpuOf(guest *suite.Guest, iterations int) (time.Duration, error) {
	used, err := usageOf(suiteWorker{guest}, iterations)
	return used.cpu, err
}

// warmUp runs the guest until its iterations cost about the same.
func (b bench) warmUp(guest *suite.Guest) error {
	if b.how.cold {
		return nil
	}
	_, err := guest.Run(guest.Warmup())
	return err
}

// settle warms the guest up, and returns how many iterations fill a segment.
func (b bench) settle(guest *suite.Guest) (int, error) {
	if err := b.warmUp(guest); err != nil {
		return 0, err
	}
	return amountFor(suiteWorker{guest}, b.how.segment)
}
