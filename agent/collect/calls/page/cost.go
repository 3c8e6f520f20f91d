package page

import (
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// calibrateEvery: one burst in this many has stride 1, including the first of each thread.
const calibrateEvery = 64

// hitCost measures the cost of a hit in the running processes themselves. In a burst of stride 1,
// the time from one hit to the next is a whole hit (into the kernel, the program, and back) plus
// the process's own work for one call. A low quantile of many such times has next to no work in it,
// as processes worth sampling make calls within nanoseconds. As it still has some, it is an upper
// bound. It does not depend on anything that a process writes.
type hitCost struct {
	mu   sync.Mutex
	last map[thread]hit
	gaps [1024]uint64 // ns, the latest
	n    int          // gaps ever
	low  uint64       // their lower quartile, 0 while there are too few
}

type thread struct{ guest, tid uint32 }

type hit struct{ burst, time uint64 }

// maxThreads bounds the threads whose last hit is kept.
const maxThreads = bpf.MaxPageGuests * bpf.PageSlots

// observe reads a call; the calls of a thread must come in order.
func (h *hitCost) observe(c *bpf.Call) {
	if c.Stride != 1 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	key := thread{c.Attachment, c.Header.Tid}
	before, ok := h.last[key]
	if ok && before.burst == c.Burst && c.Header.Time > before.time {
		h.add(c.Header.Time - before.time)
	}
	if !ok && len(h.last) >= maxThreads {
		clear(h.last) // mostly threads that have ended
	}
	if h.last == nil {
		h.last = map[thread]hit{}
	}
	h.last[key] = hit{c.Burst, c.Header.Time}
}

// add stores a gap. The quartile is computed so rarely that this costs next to nothing.
func (h *hitCost) add(gap uint64) {
	h.gaps[h.n%len(h.gaps)] = gap
	h.n++
	every := 256
	if h.n < every {
		every = 8 // what the first burst of the smallest size has twice
	}
	if h.n%every == 0 {
		gaps := slices.Sorted(slices.Values(h.gaps[:min(h.n, len(h.gaps))]))
		h.low = gaps[len(gaps)/4]
	}
}

// time returns the lower quartile of the latest gaps, 0 while there are too few.
func (h *hitCost) time() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Duration(h.low)
}

// Plausible costs of an interruption: on a fast machine without a hypervisor, and on a slow one
// with two.
const (
	minTickCost = 500 * time.Nanosecond
	maxTickCost = 50 * time.Microsecond
)

// measureTick measures what an interruption of prog's event costs its thread, without the program
// itself. It repeats a piece of work of some hundred microseconds, without interruptions and with
// one every 50 us, and compares the fastest of each: the rest of the machine can only make them
// slower. It takes about 20 ms.
func measureTick(prog *ebpf.Program) time.Duration {
	const period = 50 * time.Microsecond
	const rounds = 24
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	stop, err := interrupt(prog, period)
	if err != nil {
		return maxTickCost
	}
	slow := fastest(rounds)
	stop()
	fast := fastest(rounds)
	// slow contains one interruption per period, including the time of the interruptions
	// themselves.
	ticks := float64(slow) / float64(period)
	return min(max(time.Duration(float64(slow-fast)/ticks), minTickCost), maxTickCost)
}

// fastest returns the shortest time for the piece of work.
func fastest(rounds int) time.Duration {
	best := time.Duration(1 << 62)
	x := uint64(1)
	for range rounds {
		begin := time.Now()
		for range 400_000 {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
		}
		best = min(best, time.Since(begin))
	}
	if x == 0 {
		return 0 // never: xorshift does not reach 0. The compiler cannot know that and keeps the work
	}
	return best
}

// interrupt lets prog run on the current thread every period of its CPU time, until stop is called.
func interrupt(prog *ebpf.Program, period time.Duration) (stop func(), err error) {
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK, Size: unix.PERF_ATTR_SIZE_VER5,
		Sample: uint64(period),
	}
	fd, err := unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	l, err := link.AttachRawLink(link.RawLinkOptions{Target: fd, Program: prog, Attach: ebpf.AttachPerfEvent})
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return func() { l.Close(); unix.Close(fd) }, nil
}
