package main

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/proc"
)

// maxIdle bounds the processes that are asked for their CPU time.
const maxIdle = 256

// usedBy is the CPU time that processes have used so far, of those that exist.
func usedBy(pids []int) map[int]time.Duration {
	used := map[int]time.Duration{}
	for _, pid := range pids[:min(len(pids), maxIdle)] {
		if t, ok := proc.CPUTime(pid); ok {
			used[pid] = t
		}
	}
	return used
}

// idleNotes name the processes that have used no CPU time since then, or less than one sample stands for, of which a profile shows nothing.
func idleNotes(since map[int]time.Duration, sample time.Duration) (notes []string) {
	const most = 10
	for _, pid := range slices.Sorted(maps.Keys(since)) {
		now, ok := proc.CPUTime(pid)
		used := now - since[pid]
		switch {
		case !ok || used < 0 || used >= sample: // it has ended, or there may be samples
			continue
		case len(notes) == most:
			return append(notes, "and so did others")
		case used == 0:
			notes = append(notes, fmt.Sprintf("process %d used no CPU time", pid))
		default:
			notes = append(notes, fmt.Sprintf("process %d used %v of CPU time; a sample stands for %v", pid, used.Round(10*time.Microsecond), sample.Round(10*time.Microsecond)))
		}
	}
	return notes
}
