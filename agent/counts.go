package agent

import (
	"fmt"
	"maps"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// noEventDiscards is noDiscards for events.
func noEventDiscards() map[string]uint64 {
	none := noDiscards()
	none[profile.Unobserved] = 0
	return none
}

// noDiscards holds every reason, so that a series exists before its first failure.
func noDiscards() map[string]uint64 {
	return map[string]uint64{profile.Malformed: 0, profile.EmptyStack: 0, profile.Failed: 0, profile.NoWindow: 0}
}

// A snapshot is what has been counted since the agent started.
type snapshot struct {
	kernel    bpf.Counts
	received  receivedCounts
	discarded map[string]uint64
	observed  observedCounts
	allocated classCounts // nil unless objects are counted
	covered   map[*fold.Coverage]fold.CoverageSums
}

// snapshot counts; mu is held.
func (a *Agent) snapshot() snapshot {
	c, err := a.objects.ReadCounts()
	if err != nil {
		a.log.Error("cannot read the kernel side's counters", "err", err)
	}
	s := snapshot{kernel: c, received: a.received, discarded: maps.Clone(a.discarded), observed: a.observed.clone()}
	for source := range a.sources.all() {
		source.count(&s)
	}
	return s
}

// since is what was counted after before. Samples in flight at either edge are in Attempted and not in Delivered, or
// the other way round; the identities hold when the agent was stopped and flushed first.
func (s snapshot) since(before snapshot) profile.Counts {
	d := func(c bpf.Counter) uint64 { return s.kernel[c] - before.kernel[c] }
	c := profile.Counts{
		Attempted: d(bpf.SamplesAttempted),
		Delivered: s.received.samples - before.received.samples,
		Dropped: map[string]uint64{
			"ring_full":   d(bpf.SamplesDroppedRingFull),
			"unknown_cpu": d(bpf.SamplesDroppedNoScratch),
		},
		Folded:    s.received.folded - before.received.folded,
		Discarded: map[string]uint64{},
		Idle:      d(bpf.TicksIdle),
		Filtered:  d(bpf.TicksFiltered),
		Truncated: map[string]uint64{},
	}
	for end := range bpf.EndCount {
		if end.Truncated() {
			c.Truncated[end.String()] = 0
		}
	}
	for why, n := range s.discarded {
		c.Discarded[why] = n - before.discarded[why]
	}
	return c
}

// Counts since the agent started.
func (a *Agent) Counts() profile.Counts {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.snapshot().since(snapshot{})
}

// comments are what readers of any profile of this agent must know.
func (a *Agent) comments() []string {
	var u unix.Utsname
	unix.Uname(&u)
	return append([]string{
		"vmprof-agent " + a.opt.Version,
		fmt.Sprintf("kernel %s %s", unix.ByteSliceToString(u.Release[:]), unix.ByteSliceToString(u.Machine[:])),
	}, a.hints...)
}

// monotonic is CLOCK_MONOTONIC, the clock of the event stream.
func monotonic() time.Duration { return proc.Monotonic() }
