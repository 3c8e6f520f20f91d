package targets

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
)

// maxIdle bounds the processes that are asked for their CPU time.
const maxIdle = 256

// UsedBy is the CPU time that processes have used so far, of those that exist.
func UsedBy(pids []int) map[int]time.Duration {
	used := map[int]time.Duration{}
	for _, pid := range pids[:min(len(pids), maxIdle)] {
		if t, ok := proc.CPUTime(pid); ok {
			used[pid] = t
		}
	}
	return used
}

// stoppedBy is what keeps a process from running, and how to end that; "" for nothing.
func stoppedBy(pid int) string {
	st, err := proc.DefaultRoot.Stat(pid)
	switch {
	case err != nil:
		return ""
	case st.State == 'T':
		return fmt.Sprintf("by a signal: `kill -CONT %d` continues it", pid)
	case st.State == 't':
		return "by a debugger"
	}
	return ""
}

// StoppedNote says that processes do not run, if each of them is stopped; "" otherwise, or if there
// are none.
func StoppedNote(pids []int) (note string) {
	for _, pid := range pids[:min(len(pids), maxIdle)] {
		by := stoppedBy(pid)
		if by == "" {
			return ""
		}
		note = fmt.Sprintf("process %d is stopped %s", pid, by)
	}
	if len(pids) > 1 {
		note = fmt.Sprintf("all %d processes are stopped, by signals or a debugger", len(pids))
	}
	return note
}

// IdleNotes name the processes that have used no CPU time since then, or less than one sample
// stands for, of which a profile shows nothing. Stopped says that all of them are stopped, and that
// there are any.
func IdleNotes(since map[int]time.Duration, sample time.Duration) (notes []string, stopped bool) {
	stopped = len(since) > 0
	for pid := range since {
		stopped = stopped && stoppedBy(pid) != ""
	}
	const most = 10
	for _, pid := range slices.Sorted(maps.Keys(since)) {
		now, ok := proc.CPUTime(pid)
		used := now - since[pid]
		switch {
		case !ok || used < 0 || used >= sample: // it has ended, or there may be samples
			continue
		case len(notes) == most:
			return append(notes, "and others likewise"), stopped
		case used == 0 && stoppedBy(pid) != "":
			notes = append(notes, fmt.Sprintf("process %d is stopped %s", pid, stoppedBy(pid)))
		case used == 0:
			notes = append(notes, fmt.Sprintf("process %d used no CPU time", pid))
		default:
			notes = append(notes, fmt.Sprintf("process %d used %v of CPU time, less than one sample period (%v)", pid,
				used.Round(10*time.Microsecond), sample.Round(10*time.Microsecond)))
		}
	}
	return notes, stopped
}
