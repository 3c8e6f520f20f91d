package agent

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// Choose adds a process to those that are sampled, if the kernel side chooses. A process that finds no room is counted
// (Stats.ProcessesRefused), and is no error: the others are sampled.
func (a *Agent) Choose(pid int) error {
	err := a.services.Objects.Pids.Put(uint32(pid), uint8(1))
	if errors.Is(err, unix.E2BIG) {
		a.refused.Add(1)
		return nil
	}
	if err != nil {
		return fmt.Errorf("choose process %d: %w", pid, err)
	}
	return nil
}

// processesRefused is how many processes found no room among the chosen ones: those that Choose was called for, and children.
func (a *Agent) processesRefused(c *bpf.Counts) uint64 {
	return a.refused.Load() + c[bpf.ProcessesRefused]
}

// roomNotes say what is missing in a window because it found no room in a table of the kernel side, or came too early.
func (a *Agent) roomNotes(before, after *bpf.Counts) (notes []string) {
	since := func(c bpf.Counter) uint64 { return after[c] - before[c] }
	note := func(n uint64, format string, rest ...any) {
		if n > 0 {
			notes = append(notes, fmt.Sprintf(format, append([]any{n}, rest...)...))
		}
	}
	// Since the agent started: whoever was refused is missing in all later windows, too.
	note(a.processesRefused(after), "%d processes are not sampled: at most %d can be chosen, their children included; choose fewer, or record all",
		bpf.MaxChosen)
	note(since(bpf.EventsDroppedRingFull)+since(bpf.EventsDroppedBusy), "%d announcements of code or processes were lost: names may be missing")
	note(since(bpf.ObservationsDroppedTableFull), "%d events are not recorded: more than %d threads waited, or classes were counted, at once",
		bpf.MaxWaiting)
	note(since(bpf.ThreadsRefused), "%d times a Java thread found no room among the %d that are known by their ids (JVMs without the symbol "+
		"Thread::_thr_current): its samples in native code may lack their Java callers", bpf.MaxKnownThreads)
	note(since(bpf.HitsUnattached), "%d allocations and waits are not recorded: they came before the agent had attached to their JVM")
	return notes
}
