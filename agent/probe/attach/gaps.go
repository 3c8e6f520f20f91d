package attach

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
)

// The kernel takes the event off a CPU that goes offline, and does not put it back when the CPU is
// online again: suspend and resume do that to all CPUs but one. The list of online CPUs may be the
// same before and after. So the event itself is asked for how long it has counted.

// A Gap is a time in which the event of an online CPU did not count, or did not for certain.
type Gap struct {
	CPU          int
	Began, Ended time.Duration // CLOCK_MONOTONIC
}

const (
	checkInterval = 10 * time.Second // time between two looks at the events of CPUs, which interrupt those CPUs
	// maxLag is by how much the clocks of a CPU and of the machine, and a look at both, may differ;
	// and 1 %.
	maxLag  = 100 * time.Millisecond
	maxGaps = 1024 // gaps that are remembered; the oldest ones make room
)

// counted is for how long the event has counted.
func (k *tick) counted() (time.Duration, error) {
	// This is what attr.Read_format says: the number of events, for how long they have counted, and
	// for how long a counter was theirs.
	var b [24]byte
	n, err := unix.Read(k.fd, b[:])
	if err != nil || n < len(b) {
		return 0, fmt.Errorf("read for how long an event has counted: %d bytes, %w", n, err)
	}
	return time.Duration(binary.NativeEndian.Uint64(b[8:])), nil
}

// watch has the next call of dead compare with what the event has counted now.
func (k *tick) watch() {
	k.before, _ = k.counted() // a broken one is found by dead
	k.watched = proc.Monotonic()
}

// dead reports whether the event has not counted for all of the time since it was watched, and
// since when.
func (k *tick) dead() (since time.Duration, dead bool) {
	// The time is taken before the event is read, as watched is after that: what comes between does
	// not look like a gap.
	now := proc.Monotonic()
	counted, err := k.counted()
	if err != nil {
		return k.watched, true
	}
	elapsed, ran := now-k.watched, counted-k.before
	return k.watched + max(ran, 0), elapsed-ran > maxLag+elapsed/100
}

// miss remembers that the CPU was not sampled from then until now.
func (t *Ticks) miss(cpu int, began time.Duration) {
	now := proc.Monotonic()
	for i := range t.gaps {
		if g := &t.gaps[i]; g.CPU == cpu && g.Ended >= began { // known up to a moment ago
			g.Ended = now
			return
		}
	}
	if len(t.gaps) >= maxGaps {
		t.gaps = slices.Delete(t.gaps, 0, 1)
	}
	t.gaps = append(t.gaps, Gap{cpu, began, now})
}

// due reports whether the events are to be looked at: it is time, or the machine was suspended,
// which its monotonic clock does not count.
func (t *Ticks) due(now time.Duration) bool {
	suspended := proc.SinceBoot() - now
	slept := suspended-t.suspended > maxLag
	t.suspended = suspended
	if !slept && now-t.checked < checkInterval {
		return false
	}
	t.checked = now
	return true
}

// check closes the events that do not count any more.
func (t *Ticks) check() {
	for cpu, k := range t.cpus {
		if since, dead := k.dead(); dead {
			t.miss(cpu, since)
			k.close()
			delete(t.cpus, cpu)
			continue
		}
		if proc.Monotonic()-k.watched >= checkInterval/2 { // not at each of many looks: short gaps must add up
			k.watch()
		}
	}
}

// Gaps returns when CPUs were online and not sampled in that time of CLOCK_MONOTONIC. It has those
// CPUs sampled again.
func (t *Ticks) Gaps(began, ended time.Duration) (gaps []Gap, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ticking {
		t.check()
		err = t.refresh()
	}
	for _, g := range t.gaps {
		if g.Began, g.Ended = max(g.Began, began), min(g.Ended, ended); g.Began < g.Ended {
			gaps = append(gaps, g)
		}
	}
	return gaps, err
}
