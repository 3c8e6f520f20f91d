package events

import (
	"fmt"
	"sync"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/budget"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/events/probes"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// A followedShare is how many waits of threads that switch often are followed. The zero value is
// all.
type followedShare struct {
	mu     sync.Mutex
	every  uint32 // one in that many; 0 is 1
	shares []shareSince
	at     time.Duration
	seen   waitCounts
}

// A shareSince is a share, and the time of CLOCK_MONOTONIC from which it held.
type shareSince struct {
	every uint32
	since time.Duration
}

// next returns one in how many is to be followed so that this takes no more than that many CPUs,
// given the counts until now.
func (f *followedShare) next(now time.Duration, c waitCounts, allowed float64) (every uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before, passed, every := f.seen, now-f.at, max(f.every, 1)
	f.seen, f.at = c, now
	if passed <= 0 || before == (waitCounts{}) {
		return every
	}
	used := float64(c.following(&before)) / float64(passed)
	factor := min(max(used/max(allowed, 1e-9), 1.0/waitsFactor), waitsFactor)
	want := uint32(min(max(float64(every)*factor+0.5, 1), bpf.MaxFollowEvery))
	if ratio := float64(want) / float64(every); want == every || ratio > 1/probes.Steady && ratio < probes.Steady {
		return every
	}
	f.every = want
	if len(f.shares) == maxMeans {
		f.shares = append(f.shares[:0], f.shares[1:]...)
	}
	f.shares = append(f.shares, shareSince{want, now})
	return want
}

// note says which waits were followed from one time to another; it is empty if all were.
func (f *followedShare) note(from, to time.Duration) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var most uint32
	for i, s := range f.shares {
		if s.since < to && (i+1 == len(f.shares) || f.shares[i+1].since > from) {
			most = max(most, s.every)
		}
	}
	if most <= 1 {
		return ""
	}
	return fmt.Sprintf("threads switched too often to follow every wait: in threads with more than about 100 waits a "+
		"second, as few as one wait in %d was followed, weighted for the others", most)
}

// A chosenLoad is how many CPUs the processes use whose threads are followed.
type chosenLoad struct {
	at    time.Duration
	times budget.Times
	load  float64
}

// cpus returns it for the last second; times reads the CPU times of the processes.
func (l *chosenLoad) cpus(now time.Duration, times func() budget.Times) float64 {
	if l.times == nil || now-l.at >= probes.GovernEvery {
		later := times()
		if l.times != nil {
			l.load = l.times.Until(later).Seconds() / (now - l.at).Seconds()
		}
		l.times, l.at = later, now
	}
	return l.load
}

// chosenTimes reads the CPU times of the processes that are recorded, by their ids.
func (e *Source) chosenTimes() budget.Times {
	times := make(budget.Times)
	add := func(pid int) {
		if used, ok := proc.CPUTime(pid); ok {
			times[uint32(pid)] = used
		}
	}
	if !e.services.Filter {
		pids, _ := e.services.Root.PIDs() // Nothing is known of processes that cannot be read.
		for _, pid := range pids {
			add(pid)
		}
		return times
	}
	var pid uint32
	var one uint8
	for chosen := e.services.Objects.Pids.Iterate(); chosen.Next(&pid, &one); {
		add(int(pid))
	}
	return times
}
