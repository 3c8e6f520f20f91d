package page

import (
	"fmt"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/attach"
	"github.com/vmprof-agent/vmprof-agent/agent/calls"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// Tune changes how much is sampled. Bursts that are under way end as they began.
func (e *Engine) Tune(r profile.Rate) error {
	k := bpf.BurstRate{Stride: uint32(max(r.Stride, 1)), Samples: uint32(max(r.Samples, 0)), Calibrate: calibrateEvery}
	if err := e.objects.BurstRates.Put(uint32(0), &k); err != nil {
		return fmt.Errorf("set the sampling rate in the kernel: %w", err)
	}
	e.weigher.tune(r)
	return e.setTicks(r.Hz)
}

// setTicks lets all CPUs tick hz times a second of CPU time; 0 ends all ticks.
func (e *Engine) setTicks(hz int) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if hz == e.hz {
		return nil
	}
	// Reopened, since what the kernel can change of an open event depends on what it counts.
	if e.ticks != nil {
		e.ticks.Close()
		e.ticks, e.hz = nil, 0
	}
	if hz <= 0 {
		return nil
	}
	t, err := attach.NewTicks(e.objects.BurstArm, hz)
	if err != nil {
		return fmt.Errorf("arm bursts: %w", err)
	}
	if err := t.Start(); err != nil {
		t.Close()
		return fmt.Errorf("arm bursts: %w", err)
	}
	e.ticks, e.hz = t, hz
	return nil
}

// Cost is what guests paid since the engine was made. Calls beyond what was armed are not in it: a guest that makes
// up calls pays for them itself, and must not slow down the sampling of others.
func (e *Engine) Cost() calls.Cost {
	var perCPU []bpf.BurstCost
	if err := e.objects.BurstCosts.Lookup(uint32(0), &perCPU); err != nil {
		return calls.Cost{} // the engine is closed
	}
	var sum bpf.BurstCost
	for _, c := range perCPU {
		sum.Hits += c.Hits
		sum.Skipped += c.Skipped
		sum.Ticks += c.Ticks
		sum.TickNs += c.TickNs
	}
	tick := e.tick
	if sum.Ticks > 0 {
		tick += time.Duration(sum.TickNs / sum.Ticks)
	}
	return calls.Cost{
		Hits: sum.Hits, HitTime: e.hit.time(), TickTime: tick, SkipTime: skipTime,
		Arming: time.Duration(sum.TickNs) + time.Duration(sum.Ticks)*e.tick + time.Duration(sum.Skipped)*skipTime,
	}
}
