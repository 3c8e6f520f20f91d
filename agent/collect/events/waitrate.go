package events

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/budget"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/events/probes"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// Bounds of the mean interval of off-CPU samples, which is also how long waits are that are
// recorded always.
const (
	leastMean = time.Millisecond
	firstMean = 10 * time.Millisecond
	mostMean  = time.Minute
)

// The interval is set that often, and changes by at most that factor at once. While it stays as it is,
// and all waits are followed for calmPart of what that may take, it is looked at less and less often.
const (
	waitsGovernedEvery = 200 * time.Millisecond
	waitsCalmEvery     = time.Second
	waitsFactor        = 4
	calmPart           = 0.125
)

// leastRecordShare is which part of the budget of waits their records may take however much
// following them does.
const leastRecordShare = 0.25

// Between two settings of the interval, the kernel side doubles it if records take more than that
// many times what they may: threads may begin to wait in large numbers at once. Until the cost of a
// record is known it is taken for usualRecord.
const (
	excess      = 2
	usualRecord = 10 * time.Microsecond
)

// switchCost is what following a wait takes without a record, and skipCost what a wait takes that
// is not followed: the work of two runs of programs. These are estimates for a virtual machine.
// That the kernel calls the programs at all costs as much again, in every process.
const (
	switchCost = 200 * time.Nanosecond
	skipCost   = 40 * time.Nanosecond
)

// wakingCost is what the program of wakers takes without a record, at each waking of a thread that
// is followed, measured likewise.
const wakingCost = 250 * time.Nanosecond

// A waitRate is the rate at which waits are sampled.
type waitRate struct {
	mu    sync.Mutex
	mean  time.Duration
	means []meanSince // means for notes, in order
	at    time.Duration
	seen  waitCounts

	each    time.Duration // what a record takes
	records float64       // how many CPUs records may take
}

// A meanSince is a mean interval, and the time of CLOCK_MONOTONIC from which it held.
type meanSince struct{ mean, since time.Duration }

// maxMeans bounds the intervals that are kept: those of the last minutes.
const maxMeans = 1024

// waitCounts are counts of the kernel side.
type waitCounts struct {
	waits, wakings uint64        // those that were followed
	skipped        uint64        // waits that were not
	records        uint64        // records of waits and of wakers
	observations   uint64        // observations of all kinds
	spent          time.Duration // time spent in these
}

func waitCountsOf(c *bpf.Counts) waitCounts {
	return waitCounts{
		c[bpf.WaitsSeen], c[bpf.WakingsSeen], c[bpf.WaitsSkipped],
		c[bpf.WaitsSeen] - min(c[bpf.WaitsThinned], c[bpf.WaitsSeen]) + c[bpf.WakersDrawn],
		c[bpf.ObservationsAttempted], time.Duration(c[bpf.NsProbes]),
	}
}

// following is what following waits has taken since before, without those that were not followed.
func (c *waitCounts) following(before *waitCounts) time.Duration {
	return time.Duration(c.waits-before.waits)*switchCost + time.Duration(c.wakings-before.wakings)*wakingCost
}

// begin returns the first mean interval, if waits may take that many CPUs.
func (r *waitRate) begin(now time.Duration, allowed float64) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.set(firstMean, now)
	r.at, r.each, r.records = now, usualRecord, allowed
	return r.mean
}

// set sets the interval; mu is held.
func (r *waitRate) set(mean, now time.Duration) {
	if len(r.means) == maxMeans {
		r.means = append(r.means[:0], r.means[1:]...)
	}
	r.mean = mean
	r.means = append(r.means, meanSince{mean, now})
}

// now returns the interval.
func (r *waitRate) now() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mean
}

// raised notes the interval that the kernel side has, if it is not the one that was set.
func (r *waitRate) raised(mean, now time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if mean <= r.mean {
		return false
	}
	r.set(mean, now)
	return true
}

// next returns the interval with which waits take no more than that many CPUs, given the counts
// until now; changed is false if it stays. The kernel side has used the interval mean since before
// the last call; if it has raised it since then, the counts say nothing of the new one.
func (r *waitRate) next(
	now time.Duration, c waitCounts, allowed float64, raised bool,
) (mean time.Duration, changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, passed := r.seen, now-r.at
	r.seen, r.at = c, now
	if passed <= 0 {
		return r.mean, false
	}
	following := c.following(&before)
	r.records = max(allowed-float64(following)/float64(passed), leastRecordShare*allowed)
	if c.observations == before.observations {
		return r.mean, false
	}
	r.each = (c.spent - before.spent) / time.Duration(c.observations-before.observations)
	if raised {
		return r.mean, false
	}
	used := float64(c.records-before.records) * float64(r.each) / float64(passed)
	factor := min(max(used/max(r.records, 1e-9), 1.0/waitsFactor), waitsFactor)
	mean = min(max(time.Duration(float64(r.mean)*factor), leastMean), mostMean)
	if ratio := float64(mean) / float64(r.mean); ratio > 1/probes.Steady && ratio < probes.Steady {
		return r.mean, false
	}
	r.set(mean, now)
	return mean, true
}

// pause returns the least mean time between records, for the kernel side.
func (r *waitRate) pause() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Duration(float64(r.each) / (excess * max(r.records, 1e-9)))
}

// governWaits keeps the waits within the budget until ctx ends.
func (e *Source) governWaits(ctx context.Context) {
	pause := waitsGovernedEvery
	wait := time.NewTimer(0)
	defer wait.Stop()
	for {
		wait.Reset(proc.InStep(pause))
		select {
		case <-ctx.Done():
			return
		case <-wait.C:
		}
		before := e.waits.rate.now()
		e.services.Resolver.Keep(guest.StageUpkeep, e.governWaitsOnce)
		pause = e.waits.pause(pause, before)
	}
}

// pause returns the next pause, given the last one and the mean interval before it was set.
func (w *waits) pause(last, before time.Duration) time.Duration {
	if w.rate.now() != before || !w.share.calm() {
		return waitsGovernedEvery
	}
	return min(2*last, waitsCalmEvery)
}

func (e *Source) governWaitsOnce() {
	counts, err := e.services.Objects.ReadCounts()
	if err != nil {
		return // other readers report that
	}
	if err := e.waits.govern(waitCountsOf(&counts), e.waitsAllowed()); err != nil {
		e.services.Log.Warn("cannot set how many waits are recorded", "err", err)
	}
}

// govern sets how many waits are followed and recorded, given the counts until now and how many
// CPUs waits may take.
func (w *waits) govern(counts waitCounts, allowed float64) error {
	raised, err := w.noteMean()
	if err != nil {
		return err
	}
	now := proc.Monotonic()
	err = w.kernel.Rotate(w.share.next(now, counts, allowed/2))
	if mean, changed := w.rate.next(now, counts, allowed, raised); changed {
		err = errors.Join(err, w.kernel.SetMean(mean))
	}
	return errors.Join(err, w.kernel.SetPause(w.rate.pause()))
}

// noteMean notes the mean interval if the kernel side has raised it.
func (w *waits) noteMean() (raised bool, err error) {
	mean, err := w.kernel.Mean()
	return err == nil && w.rate.raised(mean, proc.Monotonic()), err
}

// waitsAllowed is how many CPUs waits may take.
func (e *Source) waitsAllowed() float64 {
	return e.AffordableCPUs(profile.OffCPU, e.waits.load.cpus(proc.Monotonic(), e.chosenTimes))
}

// note says how waits were sampled from one time to another.
func (r *waitRate) note(from, to time.Duration) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	longest := time.Duration(0)
	for i, m := range r.means {
		if m.since < to && (i+1 == len(r.means) || r.means[i+1].since > from) {
			longest = max(longest, m.mean)
		}
	}
	if longest == 0 {
		return ""
	}
	return fmt.Sprintf("every wait of %v and longer is recorded, and a sample of the shorter ones, drawn in "+
		"proportion to their length", longest.Round(longest/100))
}

// A followedShare is how many waits of threads that switch often are followed. The zero value is
// all.
type followedShare struct {
	mu     sync.Mutex
	every  uint32 // one in that many; 0 is 1
	shares []shareSince
	at     time.Duration
	seen   waitCounts
	part   float64 // what following took of what it may take, last
}

// A shareSince is a share, and the time of CLOCK_MONOTONIC from which it held.
type shareSince struct {
	every uint32
	since time.Duration
}

// calm reports whether all waits are followed, and that takes little of what it may.
func (f *followedShare) calm() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.every <= 1 && f.part < calmPart
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
	f.part = used / max(allowed, 1e-9)
	factor := min(max(f.part, 1.0/waitsFactor), waitsFactor)
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
	if l.times == nil || now-l.at >= probes.GovernEvery-waitsGovernedEvery/2 {
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
