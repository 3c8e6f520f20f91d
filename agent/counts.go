package agent

import (
	"fmt"
	"maps"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// Why user space drops a sample that it received.
const (
	discardMalformed = "malformed" // a record that cannot be decoded
	discardEmpty     = "empty_stack"
	discardFailed    = "failed"    // the agent panicked over it
	discardNoWindow  = "no_window" // nobody was recording these processes
	// discardUnobserved: an event after the end of the slice of time in which it would have counted.
	discardUnobserved = "unobserved"
)

// noEventDiscards is noDiscards for events.
func noEventDiscards() map[string]uint64 {
	none := noDiscards()
	none[discardUnobserved] = 0
	return none
}

// noDiscards holds every reason, so that a series exists before its first failure.
func noDiscards() map[string]uint64 {
	return map[string]uint64{discardMalformed: 0, discardEmpty: 0, discardFailed: 0, discardNoWindow: 0}
}

// A snapshot is what has been counted since the agent started.
type snapshot struct {
	kernel    bpf.Counts
	received  receivedCounts
	discarded map[string]uint64
	observed  observedCounts
	allocated classCounts // nil unless objects are counted
	covered   map[*coverage]coverageSums
}

// snapshot counts; mu is held.
func (a *Agent) snapshot() snapshot {
	c, err := a.objects.ReadCounts()
	if err != nil {
		a.log.Error("cannot read the kernel side's counters", "err", err)
	}
	s := snapshot{kernel: c, received: a.received, discarded: maps.Clone(a.discarded), observed: a.observed.clone()}
	if a.events != nil && a.events.opt.ExactAllocations {
		if s.allocated, err = a.events.classCounts(); err != nil {
			a.log.Error("cannot read how many objects were allocated", "err", err)
		}
	}
	if a.events != nil {
		s.covered = a.events.covers.sums(monotonic())
	}
	return s
}

// since is what was counted after before. Samples in flight at either edge are in Attempted and not in Delivered, or
// the other way round; the identities hold when the agent was stopped and flushed first.
func (s snapshot) since(before snapshot) Counts {
	d := func(c bpf.Counter) uint64 { return s.kernel[c] - before.kernel[c] }
	c := Counts{
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
func (a *Agent) Counts() Counts {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.snapshot().since(snapshot{})
}

// DroppedTotal is the sum over all causes.
func (c Counts) DroppedTotal() uint64 { return sum(c.Dropped) }

// DiscardedTotal is the sum over all causes.
func (c Counts) DiscardedTotal() uint64 { return sum(c.Discarded) }

// TruncatedTotal is the sum over all reasons.
func (c Counts) TruncatedTotal() uint64 { return sum(c.Truncated) }

func sum(m map[string]uint64) (n uint64) {
	for _, v := range m {
		n += v
	}
	return n
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
func monotonic() time.Duration {
	var ts unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // cannot fail
	return time.Duration(ts.Nano())
}
