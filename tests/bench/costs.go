package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
	"github.com/vmprof-agent/vmprof-agent/tests/suite"
)

// A cost is what it costs to watch one guest at one rate.
type cost struct {
	guest string
	rate  int

	// CPU time of the guest, watched over not watched, each segment beside the two around it;
	// control is not watched over not watched, and says how far from 1 a ratio is by chance; versus
	// is watched by the agent over by perf.
	agent, perf, control, versus harness.Ratio

	own agentCost // sum over all watched segments
}

// bpfAim is how long the sampling program may take for a Java stack, in nanoseconds: compilers have
// deep stacks, and much code.
func bpfAim(guest string) float64 {
	switch guest {
	case "Javac":
		return 4000
	case "Scalac":
		return 7000
	}
	return 2000
}

// ringAim is how many bytes a sample may take in the ring.
func ringAim(guest string) float64 {
	if guest == "Javac" || guest == "Scalac" {
		return 130
	}
	return 64
}

// costs measures every guest at every rate.
func (b bench) costs(ctx context.Context) ([]harness.Table, error) {
	var costs []cost
	for _, name := range b.guests {
		of, err := b.costsOf(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		costs = append(costs, of...)
	}
	return []harness.Table{{Marker: "overhead", Table: overheadTable(costs)},
		{Marker: "costs", Table: ownTable(costs)}}, nil
}

// costsOf measures all rates beside one guest, which runs on between them.
func (b bench) costsOf(ctx context.Context, name string) ([]cost, error) {
	guest, err := suite.Start(ctx, b.jdk, name)
	if err != nil {
		return nil, err
	}
	defer guest.Close()
	iterations, err := b.settle(guest)
	if err != nil {
		return nil, err
	}
	var costs []cost
	for _, rate := range b.rates {
		turns, err := b.segments(ctx, guest, iterations, rate)
		if err != nil {
			return nil, fmt.Errorf("%d Hz: %w", rate, err)
		}
		c := costOf(turns)
		c.guest, c.rate = name, rate
		fmt.Fprintf(b.out, "%s at %d Hz: agent %v, perf %v, nobody %v\n", name, rate, c.agent, c.perf, c.control)
		costs = append(costs, c)
	}
	return costs, nil
}

// settle warms the guest up, and returns how many iterations fill a segment.
func (b bench) settle(guest *suite.Guest) (int, error) {
	if err := b.warmUp(guest); err != nil {
		return 0, err
	}
	return amountFor(suiteWorker{guest}, b.how.segment)
}

// A watcher is who watches in a segment.
type watcher int

const (
	byAgent watcher = iota
	byPerf
)

// A segment is what a guest used for a fixed number of iterations.
type segment struct {
	cpu   time.Duration // CPU time of the guest
	agent agentCost     // zero unless the agent watched
}

func segmentCPU(s segment) float64 { return float64(s.cpu) }

// segments has the agent and perf watch one guest in turn.
func (b bench) segments(
	ctx context.Context, guest *suite.Guest, iterations, rate int,
) (*harness.Turns[watcher, segment], error) {
	options := profiler.Options{PID: guest.PID(), Frequency: rate}
	off := func() (s segment, err error) {
		s.cpu, err = cpuOf(guest, iterations)
		return s, err
	}
	on := func(w watcher) (segment, error) {
		if w == byPerf {
			return byPerfWatched(ctx, guest, iterations, options)
		}
		return b.watched(ctx, guest, iterations, options)
	}
	return harness.Alternate(harness.Rotated(b.how.rounds, []watcher{byAgent, byPerf}), off, on, nil)
}

func byPerfWatched(ctx context.Context, guest *suite.Guest, iterations int, o profiler.Options) (s segment, err error) {
	perf, err := profiler.StartPerf(ctx, o)
	if err != nil {
		return s, err
	}
	if err = perf.WaitSampling(); err != nil {
		return s, err
	}
	if s.cpu, err = cpuOf(guest, iterations); err != nil {
		return s, err
	}
	return s, perf.Stop()
}

// watched runs a segment under the agent.
func (b bench) watched(
	ctx context.Context, guest *suite.Guest, iterations int, o profiler.Options,
) (s segment, err error) {
	s.agent, _, err = b.watch(ctx, o, (*profiler.AgentRun).WaitSampling, nil, func() error {
		var err error
		s.cpu, err = cpuOf(guest, iterations)
		return err
	})
	return s, err
}

// costOf compares each segment with its neighbours.
func costOf(turns *harness.Turns[watcher, segment]) cost {
	var c cost
	agent, control := turns.Ratios(byAgent, segmentCPU)
	perf, controlOfPerf := turns.Ratios(byPerf, segmentCPU)
	var versus []float64
	for i := range min(len(agent), len(perf)) {
		versus = append(versus, agent[i]/perf[i])
	}
	for _, turn := range turns.On {
		if turn.Kind == byAgent {
			c.own.add(turn.Sample.agent)
		}
	}
	c.agent, c.perf, c.versus = harness.RatioOf(agent), harness.RatioOf(perf), harness.RatioOf(versus)
	c.control = harness.RatioOf(slices.Concat(control, controlOfPerf))
	return c
}

func overheadTable(costs []cost) report.Table {
	table := report.Table{Header: []string{"guest", "Hz", "agent", "perf record -g", "nobody", "agent / perf",
		"aim: ≤ 1"}}
	for _, c := range costs {
		table.Add(c.guest, fmt.Sprint(c.rate), c.agent.String(), c.perf.String(), c.control.String(), c.versus.String(),
			c.versus.AtMost(1))
	}
	if len(costs) > 1 {
		var versus []float64
		for _, c := range costs {
			versus = append(versus, c.versus.Median)
		}
		all := harness.RatioOf(versus)
		table.Add("median of all", "", "", "", "", all.String(), all.AtMost(1))
	}
	return table
}

func ownTable(costs []cost) report.Table {
	table := report.Table{Header: []string{
		"guest", "Hz", "BPF, ns a Java sample", "aim", "", "BPF, ns a sample", "Java frames", "ring bytes a sample",
		"aim", "",
		"agent, % of a core", "agent, peak MB", "aim", "",
	}}
	for _, c := range costs {
		s := c.own.stats
		java := harness.Per(float64(s.BPFJavaTime/time.Nanosecond), float64(s.JavaSamples))
		bytes := harness.Per(float64(s.RingBytes), float64(s.Delivered))
		table.Add(c.guest, fmt.Sprint(c.rate),
			fmt.Sprintf("%.0f", java), fmt.Sprintf("≤ %.0f", bpfAim(c.guest)), report.Verdict(java <= bpfAim(c.guest)),
			fmt.Sprintf("%.0f", harness.Per(float64(s.BPFTime/time.Nanosecond), float64(s.Attempted))),
			fmt.Sprintf("%.0f", harness.Per(float64(s.JavaFrames), float64(s.JavaSamples))),
			fmt.Sprintf("%.0f", bytes), fmt.Sprintf("≤ %.0f", ringAim(c.guest)),
			report.Verdict(bytes <= ringAim(c.guest)),
			fmt.Sprintf("%.2f", 100*c.own.core()),
			megabytes(c.own.rss), "≤ "+megabytes(rssAim), report.Verdict(c.own.rss <= rssAim),
		)
	}
	return table
}
