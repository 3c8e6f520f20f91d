package page

import (
	"runtime"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Bounds on what an interruption is believed to cost: a fast machine without a hypervisor, and a slow one with two.
const (
	minTickCost = 500 * time.Nanosecond
	maxTickCost = 50 * time.Microsecond
)

// measureTick measures what an interruption of prog's event costs its thread, beside the program itself. A piece of
// work of some hundred microseconds is done again and again, without interruptions and with one every 50 us, and the
// fastest of each are compared: the rest of the machine can only make them slower. It takes about 20 ms.
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
	// In slow there is one interruption every period, of whatever it took in all.
	ticks := float64(slow) / float64(period)
	return min(max(time.Duration(float64(slow-fast)/ticks), minTickCost), maxTickCost)
}

// fastest returns the shortest time in which the piece of work was done.
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
		return 0 // never: xorshift does not reach 0. So the work cannot be left out
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
