package main

import (
	"context"
	"fmt"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/report"
	"github.com/vmprof-agent/vmprof-agent/tests/suite"
)

// A cost is what it costs to watch one guest at one rate.
type cost struct {
	guest string
	rate  int

	// CPU time of the guest, watched over not watched, each segment beside the two around it; control is not watched
	// over not watched, and says how far from 1 a ratio is by chance; versus is watched by the agent over by perf.
	agent, perf, control, versus ratio

	own agentCost // of all watched segments
}

// bpfAim is how long the sampling program may take for a Java stack, in nanoseconds: javac's stacks are twice as deep.
func bpfAim(guest string) float64 {
	if guest == "Javac" || guest == "Scalac" {
		return 6000
	}
	return 3000
}

// rssAim is how much memory the agent may ever have had, in bytes.
const rssAim = 60 << 20

// costs measures every guest at every rate.
func (b bench) costs(ctx context.Context, guests []string, rates []int) ([]cost, error) {
	var costs []cost
	for _, name := range guests {
		of, err := b.costsOf(ctx, name, rates)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		costs = append(costs, of...)
	}
	overhead := overheadTable(costs)
	if err := overhead.Print(b.out); err != nil {
		return nil, err
	}
	fmt.Fprintln(b.out)
	own := ownTable(costs)
	return costs, own.Print(b.out)
}

// costsOf measures all rates beside one guest, which runs on between them.
func (b bench) costsOf(ctx context.Context, name string, rates []int) ([]cost, error) {
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
	for _, rate := range rates {
		segments, err := b.segments(ctx, guest, iterations, rate)
		if err != nil {
			return nil, fmt.Errorf("%d Hz: %w", rate, err)
		}
		c := costOf(segments)
		c.guest, c.rate = name, rate
		fmt.Fprintf(b.out, "%s at %d Hz: agent %v, perf %v, nobody %v\n", name, rate, c.agent, c.perf, c.control)
		costs = append(costs, c)
	}
	return costs, nil
}

// costOf compares each segment with its neighbours. Every other segment is watched, the first and the last are not.
func costOf(segments []segment) cost {
	var c cost
	var agent, perf, control, versus []float64
	for i := 1; i < len(segments)-1; i++ {
		s := segments[i]
		switch s.watcher {
		case byAgent:
			agent = append(agent, over(s, segments[i-1], segments[i+1]))
			c.own.add(s.agent)
		case byPerf:
			perf = append(perf, over(s, segments[i-1], segments[i+1]))
		case nobody:
			if i >= 2 && i+2 < len(segments) { // the next ones that nobody watched
				control = append(control, over(s, segments[i-2], segments[i+2]))
			}
		}
	}
	for i := range min(len(agent), len(perf)) {
		versus = append(versus, agent[i]/perf[i])
	}
	c.agent, c.perf, c.control, c.versus = ratioOf(agent), ratioOf(perf), ratioOf(control), ratioOf(versus)
	return c
}

// over is the CPU time of a segment over the mean of two others.
func over(s, before, after segment) float64 {
	return 2 * float64(s.cpu) / float64(before.cpu+after.cpu)
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
func (c agentCost) core() float64 { return per(float64(c.cpu), float64(c.wall)) }

// per divides, and gives nothing for nothing.
func per(amount, by float64) float64 {
	if by == 0 {
		return 0
	}
	return amount / by
}

func overheadTable(costs []cost) report.Table {
	table := report.Table{Header: []string{"guest", "Hz", "agent", "perf record -g", "nobody", "agent / perf", "aim: ≤ 1"}}
	for _, c := range costs {
		table.Add(c.guest, fmt.Sprint(c.rate), c.agent.String(), c.perf.String(), c.control.String(), c.versus.String(),
			c.versus.atMost(1))
	}
	return table
}

func ownTable(costs []cost) report.Table {
	table := report.Table{Header: []string{
		"guest", "Hz", "BPF, ns a Java sample", "aim", "", "BPF, ns a sample", "Java frames", "ring bytes a sample",
		"agent, % of a core", "agent, peak MB", "aim", "",
	}}
	for _, c := range costs {
		s := c.own.stats
		java := per(float64(s.BPFJavaTime/time.Nanosecond), float64(s.JavaSamples))
		table.Add(c.guest, fmt.Sprint(c.rate),
			fmt.Sprintf("%.0f", java), fmt.Sprintf("≤ %.0f", bpfAim(c.guest)), report.Verdict(java <= bpfAim(c.guest)),
			fmt.Sprintf("%.0f", per(float64(s.BPFTime/time.Nanosecond), float64(s.Attempted))),
			fmt.Sprintf("%.0f", per(float64(s.JavaFrames), float64(s.JavaSamples))),
			fmt.Sprintf("%.0f", per(float64(s.RingBytes), float64(s.Delivered))),
			fmt.Sprintf("%.2f", 100*c.own.core()),
			megabytes(c.own.rss), "≤ "+megabytes(rssAim), report.Verdict(c.own.rss <= rssAim),
		)
	}
	return table
}

func megabytes(bytes uint64) string { return fmt.Sprintf("%.0f", float64(bytes)/(1<<20)) }
