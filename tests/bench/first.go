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
const firstAim = 1.0

// A start is how long the agent takes to be useful beside a guest of many methods.
type start struct {
	methods int       // compiled ones, as the JVM itself counts
	seconds []float64 // until the first named Java frame, sorted
	rss     uint64    // the most in any start
}

// median of the times.
func (s start) median() float64 { return s.seconds[len(s.seconds)/2] }

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
		s.rss = max(s.rss, recording.Stats.RSSBytes)
	}
	slices.Sort(s.seconds)
	return []harness.Table{{Marker: "first", Table: firstTable(s)}}, nil
}

func firstTable(s start) report.Table {
	table := report.Table{Header: []string{"start beside a guest of many methods", "measured", "aim", ""}}
	table.Add("compiled methods", fmt.Sprint(s.methods), "≥ 5000", report.Verdict(s.methods >= 5000))
	table.Add(fmt.Sprintf("first named Java frame, s (median of %d)", len(s.seconds)), fmt.Sprintf("%.2f", s.median()),
		fmt.Sprintf("≤ %.0f", firstAim), report.Verdict(s.median() <= firstAim))
	table.Add("agent, peak MB", megabytes(s.rss), "≤ "+megabytes(rssAim), report.Verdict(s.rss <= rssAim))
	return table
}
