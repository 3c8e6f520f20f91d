package main

import (
	"math"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
)

func TestCostOf(t *testing.T) {
	stats := profiler.Stats{Attempted: 100, JavaSamples: 50, BPFJavaTime: 100 * time.Microsecond}
	watched := agentCost{wall: time.Second, cpu: 10 * time.Millisecond, rss: 1 << 20, stats: stats}
	c := costOf([]segment{
		{watcher: nobody, cpu: 100},
		{watcher: byAgent, cpu: 110, agent: watched},
		{watcher: nobody, cpu: 100},
		{watcher: byPerf, cpu: 126},
		{watcher: nobody, cpu: 110},
		{watcher: byAgent, cpu: 126, agent: watched},
		{watcher: nobody, cpu: 100},
	})
	for name, tt := range map[string]struct{ got, want float64 }{
		"agent":   {c.agent.median, (110.0/100 + 126.0/105) / 2},
		"perf":    {c.perf.median, 126.0 / 105},
		"control": {c.control.median, (100.0/105 + 110.0/100) / 2},
		"versus":  {c.versus.median, (110.0 / 100) / (126.0 / 105)},
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

func TestRatio(t *testing.T) {
	many := ratioOf([]float64{1.01, 1.02, 1.03, 1.04, 1.05, 1.06, 1.07, 3})
	if many.median < 1.03 || many.median > 1.06 || many.low > many.median || many.high < many.median {
		t.Errorf("got %v", many)
	}
	for name, tt := range map[string]struct {
		r    ratio
		want string
	}{
		"below":        {ratio{0.98, 0.95, 1.02}, "ok"},
		"cannot tell":  {ratio{1.01, 0.99, 1.03}, "within noise"},
		"above":        {ratio{1.05, 1.02, 1.09}, "MISSED"},
		"from nothing": {ratioOf(nil), "not measured"},
	} {
		if got := tt.r.atMost(1); got != tt.want {
			t.Errorf("%s: %v is %q, want %q", name, tt.r, got, tt.want)
		}
	}
	if got := ratioOf([]float64{1, 1.1}).String(); got != "1.050 [?]" {
		t.Errorf("two values give %q", got)
	}
}

func TestParse(t *testing.T) {
	o, err := parse([]string{"-guests", "Xalan,Javac", "-rates", "99,999", "-parts", "depth"})
	if err != nil || len(o.guests) != 2 || len(o.rates) != 2 || o.rates[1] != 999 || len(o.parts) != 1 {
		t.Errorf("got %+v, %v", o, err)
	}
	if o, err = parse(nil); err != nil || len(o.eventGuests) != len(defaultEventGuests) || len(o.kinds) != len(eventKinds) {
		t.Errorf("by default events are of %v, %v, %v", o.eventGuests, o.kinds, err)
	}
	if o, err = parse([]string{"-guests", "H2"}); err != nil || len(o.eventGuests) != 1 {
		t.Errorf("of H2 alone events are of %v, %v", o.eventGuests, err)
	}
	if o, err = parse([]string{"-short"}); err != nil || len(o.eventGuests) != 1 || len(o.kinds) != 1 {
		t.Errorf("in short events are of %v, %v, %v", o.eventGuests, o.kinds, err)
	}
	for _, args := range [][]string{
		{"-rates", "fast"}, {"-rates", "0"}, {"-short", "-update"}, {"-nonsense"}, {"-parts", "nonsense"}, {"-kinds", "cpi"},
	} {
		if _, err := parse(args); err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
}
