package semaphore

import (
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/calls"
)

// Every call of a burst runs into the probe: a stride saves nothing.
func TestCost(t *testing.T) {
	if c := (totals{}).cost(500); c != (calls.Cost{}) {
		t.Errorf("nothing cost %+v", c)
	}
	spent := totals{hits: 1000, hitTime: 800 * time.Microsecond, bursts: 10, tickTime: 50 * time.Microsecond}
	c := spent.cost(500)
	want := calls.Cost{Hits: 1000, HitTime: 1300, SkipTime: 1300, TickTime: 5 * time.Microsecond, Arming: 50 * time.Microsecond}
	if c != want {
		t.Errorf("%+v, want %+v", c, want)
	}
	// What a burst is predicted to cost is what it cost.
	if got, want := 10*c.Burst(calls.Burst{Stride: 10, Samples: 10}), c.Time(); got != want {
		t.Errorf("10 bursts of 10x10 cost %v, were to cost %v", want, got)
	}
}
