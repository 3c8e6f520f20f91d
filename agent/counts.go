package agent

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/source"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// snapshot reads what sources have counted that takes long to read, and returns what counts the
// rest with a State.
func (a *Agent) snapshot() func(*fold.State) source.Snapshot {
	of := map[source.Source]func(*fold.State) any{}
	for one := range a.sources.all() {
		if counter, ok := one.(source.Counter); ok {
			of[one] = counter.Count()
		}
	}
	return func(s *fold.State) source.Snapshot {
		c, err := a.services.Objects.ReadCounts()
		if err != nil {
			a.services.Log.Error("cannot read the kernel side's counters", "err", err)
		}
		snapshot := source.Snapshot{Kernel: c, Counts: s.Counts.Clone(), BySource: map[source.Source]any{}}
		for one, count := range of {
			snapshot.BySource[one] = count(s)
		}
		return snapshot
	}
}

// countsSince is what was counted between two snapshots. Samples in flight at either edge are in
// Attempted and not in Delivered, or the other way round; the identities hold when the agent was
// stopped and flushed first.
func countsSince(before, after *source.Snapshot) profile.Counts {
	d := func(c bpf.Counter) uint64 { return after.Kernel[c] - before.Kernel[c] }
	c := profile.Counts{
		Attempted: d(bpf.SamplesAttempted),
		Delivered: after.Samples - before.Samples,
		Dropped: map[string]uint64{
			"ring_full":   d(bpf.SamplesDroppedRingFull),
			"unknown_cpu": d(bpf.SamplesDroppedNoScratch),
		},
		Folded:    after.Folded - before.Folded,
		Discarded: profile.Difference(before.Discarded, after.Discarded),
		Idle:      d(bpf.TicksIdle),
		Filtered:  d(bpf.TicksFiltered),
		Truncated: map[string]uint64{},
	}
	for end := range bpf.EndCount {
		if end.Truncated() {
			c.Truncated[end.String()] = 0
		}
	}
	return c
}

// inFlight is how many samples had been attempted and had neither been received nor lost.
func inFlight(s *source.Snapshot) uint64 {
	return s.Kernel[bpf.SamplesAttempted] - s.Samples -
		s.Kernel[bpf.SamplesDroppedRingFull] - s.Kernel[bpf.SamplesDroppedNoScratch]
}

// Counts since the agent started. It fails if the agent panics over them.
func (a *Agent) Counts() (profile.Counts, error) {
	var now source.Snapshot
	take := a.snapshot()
	if err := a.owner.Do(func(s *fold.State) { now = take(s) }); err != nil {
		return profile.Counts{}, fmt.Errorf("count samples: %w", err)
	}
	return countsSince(&source.Snapshot{}, &now), nil
}

// processesRefused is how many processes found no room among the chosen ones: those that Choose was
// called for, and children.
func (a *Agent) processesRefused(c *bpf.Counts) uint64 {
	return a.refused.Load() + c[bpf.ProcessesRefused]
}

// roomNotes say what is missing in a window because it found no room in a table of the kernel side,
// or came too early.
func (a *Agent) roomNotes(before, after *bpf.Counts) (notes []string) {
	since := func(c bpf.Counter) uint64 { return after[c] - before[c] }
	note := func(n uint64, format string, rest ...any) {
		if n > 0 {
			notes = append(notes, fmt.Sprintf(format, append([]any{n}, rest...)...))
		}
	}
	// Since the agent started: a refused process or thread is missing in all later windows, too.
	note(a.processesRefused(after), "%d processes are not sampled: at most %d can be selected, including their "+
		"children; select fewer, or record all",
		bpf.MaxChosen)
	note(since(bpf.EventsDroppedRingFull)+since(bpf.EventsDroppedBusy),
		"%d records of compilations or process starts were lost: names may be missing")
	note(since(bpf.ObservationsDroppedTableFull),
		"%d events are not recorded: more than %d threads waited at once, or more classes were counted",
		bpf.MaxWaiting)
	note(since(bpf.WaitsRefused), "%d times a thread was not followed, so its waits are missing: the limit is %d "+
		"threads, and each needs kernel memory", bpf.MaxFollowedThreads)
	note(since(bpf.ThreadsRefused), "%d times the table of Java threads by id was full (limit %d; for JVMs without "+
		"the symbol Thread::_thr_current): native samples of these threads may lack their Java callers",
		bpf.MaxKnownThreads)
	note(since(bpf.ThreadEndsDropped), "%d ends of Java threads were lost: totals lack what these threads allocated "+
		"in this window")
	note(since(bpf.UnwindUnsupported)+since(bpf.UnwindBroken), "%d native stacks are cut, as the unwind information "+
		"(.eh_frame) of their code does not lead to a caller")
	note(since(bpf.UnwindYoung), "%d native stacks are cut where code has no frame pointers: their processes were "+
		"younger than %v and had no unwind tables", bpf.LeastUnwoundAge)
	note(since(bpf.UnwindRefused), "%d times there was no room for the unwind tables of a process (limit %d): its "+
		"native stacks may be cut where code has no frame pointers; profile fewer processes", bpf.MaxUnwound)
	note(since(bpf.HitsUnattached), "%d allocations and waits were missed before the agent attached to their JVM")
	return notes
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
