package usdt

import (
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/budget"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// The predicted cost of windows equals their cost: samples, other calls of the burst, and calls
// after it.
func TestCost(t *testing.T) {
	const interruption = 100 * time.Microsecond
	if c := (totals{}).cost(0, 500, interruption); c != (budget.Cost{}) {
		t.Errorf("nothing cost %+v", c)
	}
	// Ten windows of 10x10, after each of which 20 more calls were made.
	const windows = 10
	spent := totals{
		hits: windows * 120, refused: windows * 20, sampled: windows * 10, bursts: windows,
		sampleTime: windows * 10 * time.Microsecond, hitTime: windows * (10*time.Microsecond + 110*200),
		tickTime: windows * 5 * time.Microsecond,
	}
	c := spent.cost(windows, 500, interruption)
	want := budget.Cost{
		Hits: windows * 10, HitTime: 1500, SkipTime: 700,
		TickTime: interruption + 5*time.Microsecond + 20*700, Arming: windows * (interruption + 5*time.Microsecond +
			110*700),
	}
	if c != want {
		t.Errorf("%+v, want %+v", c, want)
	}
	if got, want := windows*c.Burst(profile.Burst{Stride: 10, Samples: 10}), c.Time(); got != want {
		t.Errorf("10 bursts of 10x10 cost %v, were to cost %v", want, got)
	}
}
