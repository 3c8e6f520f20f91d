package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// firstAim is how long the agent may take from its start to the first named Java frame, in seconds.
const firstAim = 0.4

// startCPUAim is how much CPU time the agent may use until then, in seconds.
const startCPUAim = 0.25

// A start is how long the agent takes to be useful beside a guest of many methods.
type start struct {
	methods int       // compiled ones, as the JVM itself counts
	seconds []float64 // until the first named Java frame, sorted
	cpu     []float64 // seconds of the agent's CPU time for a start, two seconds of samples and the end, sorted
	rss     uint64    // the most in any start
}

func middle(sorted []float64) float64 { return sorted[len(sorted)/2] }

// first starts the agent some times beside a guest of 5,000 compiled methods.
func (b bench) first(ctx context.Context) ([]harness.Table, error) {
	guest, err := guests.Start(ctx, b.jdk, guests.Crowd(), guests.Flavour{})
	if err != nil {
		return nil, err
	}
	defer guest.Close()
	var s start
	if s.methods, err = b.jdk.CompiledMethods(ctx, guest.PID()); err != nil {
		return nil, err
	}
	for range b.how.starts {
		recording, err := b.agent.Record(ctx, profiler.Options{
			PID: guest.PID(), Frequency: busyRate, Duration: 2 * time.Second,
		})
		if err != nil {
			return nil, err
		}
		if recording.Stats.FirstSymbolised <= 0 {
			return nil, fmt.Errorf("beside %d compiled methods no Java frame got a name", s.methods)
		}
		s.seconds = append(s.seconds, recording.Stats.FirstSymbolised)
		s.cpu = append(s.cpu, recording.Stats.CPUSeconds)
		s.rss = max(s.rss, recording.Stats.RSSBytes)
	}
	slices.Sort(s.seconds)
	slices.Sort(s.cpu)
	return []harness.Table{{Marker: "first", Table: firstTable(s)}}, nil
}

func firstTable(s start) report.Table {
	table := report.Table{Header: []string{"start beside a guest of many methods", "measured", "aim", ""}}
	table.Add("compiled methods", fmt.Sprint(s.methods), "≥ 5000", report.Verdict(s.methods >= 5000))
	seconds, cpu := middle(s.seconds), middle(s.cpu)
	table.Add(fmt.Sprintf("first named Java frame, s (median of %d)", len(s.seconds)), fmt.Sprintf("%.2f", seconds),
		fmt.Sprintf("≤ %.1f", firstAim), report.Verdict(seconds <= firstAim))
	table.Add("agent, CPU time of the start and of two seconds at 999 Hz, s", fmt.Sprintf("%.2f", cpu),
		fmt.Sprintf("start ≤ %.2f", startCPUAim), report.Verdict(cpu <= startCPUAim))
	table.Add("agent, peak MB", megabytes(s.rss), "≤ "+megabytes(rssAim), report.Verdict(s.rss <= rssAim))
	return table
}
