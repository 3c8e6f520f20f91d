package main

import (
	"math"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
)

func TestCostOf(t *testing.T) {
	stats := profiler.Stats{Attempted: 100, JavaSamples: 50, BPFJavaTime: 100 * time.Microsecond}
	watched := agentCost{wall: time.Second, cpu: 10 * time.Millisecond, rss: 1 << 20, stats: stats}
	c := costOf(&harness.Turns[watcher, segment]{
		Off: []segment{{cpu: 100}, {cpu: 100}, {cpu: 110}, {cpu: 100}},
		On: []harness.Turn[watcher, segment]{
			{Kind: byAgent, Sample: segment{cpu: 110, agent: watched}},
			{Kind: byPerf, Sample: segment{cpu: 126}},
			{Kind: byAgent, Sample: segment{cpu: 126, agent: watched}},
		},
	})
	for name, tt := range map[string]struct{ got, want float64 }{
		"agent":   {c.agent.Median, (110.0/100 + 126.0/105) / 2},
		"perf":    {c.perf.Median, 126.0 / 105},
		"control": {c.control.Median, (100.0/105 + 110.0/100) / 2},
		"versus":  {c.versus.Median, (110.0 / 100) / (126.0 / 105)},
		"core":    {c.own.core(), 0.01},
	} {
		if math.Abs(tt.got-tt.want) > 1e-9 {
			t.Errorf("%s is %v, want %v", name, tt.got, tt.want)
		}
	}
	if c.own.stats.Attempted != 200 || c.own.stats.JavaSamples != 100 || c.own.rss != 1<<20 {
		t.Errorf("the agent's own costs add up to %+v", c.own)
	}
}
