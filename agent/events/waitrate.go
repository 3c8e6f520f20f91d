package events

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// Bounds of the mean interval of off-CPU samples, which is also how long waits are that are recorded always.
const (
	leastMean = time.Millisecond
	firstMean = 10 * time.Millisecond
	mostMean  = 4 * time.Second
)

// The interval is set that often, and changes by at most that factor at once.
const (
	waitsGovernedEvery = 200 * time.Millisecond
	waitsFactor        = 4
)

// leastWaitsBudget is which part of one CPU records of waits may use however idle the processes are: more than other events, as idle threads wait,
// too, and every wait of firstMean and longer should be recorded. It is enough for some 500 records a second.
const leastWaitsBudget = 0.01

// switchCost is what following a wait takes without a record: three runs of programs, measured on a virtual machine.
const switchCost = 120 * time.Nanosecond

// wakingCost is what the program of wakers takes without a record, at each waking of a thread that is followed, measured likewise.
const wakingCost = 250 * time.Nanosecond

// A waitRate is the rate at which waits are sampled.
type waitRate struct {
	mu    sync.Mutex
	mean  time.Duration
	means []meanSince // for notes, in order
	at    time.Duration
	seen  waitCounts
}

// A meanSince is a mean interval, and the time of CLOCK_MONOTONIC from which it held.
type meanSince struct{ mean, since time.Duration }

// maxMeans bounds the intervals that are kept: those of the last minutes.
const maxMeans = 1024

// waitCounts are counts of the kernel side.
type waitCounts struct {
	waits, records uint64        // that ended; records of them and of wakers
	observations   uint64        // of all kinds
	spent          time.Duration // in these
}

func waitCountsOf(c *bpf.Counts) waitCounts {
	return waitCounts{
		c[bpf.WaitsSeen], c[bpf.WaitsSeen] - min(c[bpf.WaitsThinned], c[bpf.WaitsSeen]) + c[bpf.WakersDrawn], c[bpf.ObservationsAttempted], time.Duration(c[bpf.NsProbes]),
	}
}

// begin returns the first mean interval.
func (r *waitRate) begin(now time.Duration) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.set(firstMean, now)
	r.at = now
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

// next returns the interval with which records take no more than that many CPUs, given the counts until now; changed is false if it stays.
func (r *waitRate) next(now time.Duration, c waitCounts, allowed float64) (mean time.Duration, changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, passed := r.seen, now-r.at
	r.seen, r.at = c, now
	if passed <= 0 || c.observations == before.observations {
		return r.mean, false
	}
	each := float64(c.spent-before.spent) / float64(c.observations-before.observations)
	used := float64(c.records-before.records) * each / float64(passed)
	factor := min(max(used/max(allowed, 1e-9), 1.0/waitsFactor), waitsFactor)
	mean = min(max(time.Duration(float64(r.mean)*factor), leastMean), mostMean)
	if ratio := float64(mean) / float64(r.mean); ratio > 1/steady && ratio < steady {
		return r.mean, false
	}
	r.set(mean, now)
	return mean, true
}

// governWaits keeps the records of waits within the budget until ctx ends.
func (e *Source) governWaits(ctx context.Context) {
	every := time.NewTicker(waitsGovernedEvery)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		counts, err := e.services.Objects.ReadCounts()
		if err != nil {
			continue // other readers report that
		}
		mean, changed := e.waits.rate.next(proc.Monotonic(), waitCountsOf(&counts), e.waitsAllowed())
		if !changed {
			continue
		}
		if err := e.waits.kernel.SetMean(mean); err != nil {
			e.services.Log.Warn("cannot set how many waits are recorded", "err", err)
		}
	}
}

// waitsAllowed is how many CPUs records of waits may take.
func (e *Source) waitsAllowed() float64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return max(e.allowance(profile.OffCPU, 1, 1).CPUs(max(e.cpus, 1e-9)), min(leastWaitsBudget, e.Options.Budget))
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
	return fmt.Sprintf("every wait of %v and longer is recorded, and a sample of the shorter ones, drawn in proportion to their length", longest.Round(longest/100))
}
