package proc

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Monotonic reads CLOCK_MONOTONIC, the clock of the event stream. It stands still while the machine
// is suspended. Go's own clock is the same one, and is read without a system call.
func Monotonic() time.Duration { return monotonicStart.offset + time.Since(monotonicStart.at) }

// monotonicStart is a time of Go's clock, and what CLOCK_MONOTONIC was then, to some 0.1 µs.
var monotonicStart = func() (start struct {
	at     time.Time
	offset time.Duration
}) {
	shortest := time.Duration(math.MaxInt64)
	for range 8 { // a reading may be interrupted
		before := time.Now()
		var ts unix.Timespec
		unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // cannot fail
		if took := time.Since(before); took < shortest {
			shortest, start.at, start.offset = took, before, time.Duration(ts.Nano())-took/2
		}
	}
	return start
}()

// The grids of InStep: of pauses that are shorter than a second, and of others.
const (
	wakeStep = 100 * time.Millisecond
	calmStep = time.Second
)

// InStep is about that pause: so long that who makes it wakes at a multiple of 0.1 s, or of a second
// if the pause is a second or longer, along with all others who make their pauses in step. Each time
// that the process wakes costs it more than most of what it wakes for. A pause changes by half a step
// at most, and stays as it is if it is shorter than a step.
func InStep(pause time.Duration) time.Duration { return inStep(Monotonic(), pause) }

func inStep(now, pause time.Duration) time.Duration {
	step := wakeStep
	switch {
	case pause < wakeStep:
		return pause
	case pause >= calmStep:
		step = calmStep
	}
	return (now + pause).Round(step) - now
}

// SinceBoot is the time of CLOCK_BOOTTIME, which goes on while the machine is suspended.
func SinceBoot() time.Duration {
	var ts unix.Timespec
	unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) // cannot fail
	return time.Duration(ts.Nano())
}

// CPUTime is what all threads of a process have used: its CPU clock (CPUCLOCK_SCHED of
// include/linux/posix-timers_types.h). It is false if there is no such process.
func CPUTime(pid int) (time.Duration, bool) {
	const sched = 2
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid)<<3|sched, &t); err != nil {
		return 0, false
	}
	return time.Duration(t.Nano()), true
}

// ThreadCPUTime is for how long a thread has been on a CPU, in ns: the first number of its
// schedstat (Documentation/scheduler/sched-stats.rst).
func (r Root) ThreadCPUTime(pid, tid int) (uint64, error) {
	const maxSchedstat = 128 // three numbers of 20 digits
	b, err := r.read(pid, maxSchedstat, "task", strconv.Itoa(tid), "schedstat")
	if err != nil {
		return 0, err
	}
	first, _, _ := bytes.Cut(b, []byte(" "))
	ns, err := strconv.ParseUint(string(first), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("schedstat of thread %d: %w", tid, ErrMalformed)
	}
	return ns, nil
}

// OwnThreadTime is the CPU time of the calling thread, which the goroutine must be locked to.
func OwnThreadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0 // the clock exists everywhere
	}
	return time.Duration(t.Nano())
}
