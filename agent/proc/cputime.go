package proc

import (
	"time"

	"golang.org/x/sys/unix"
)

// CPUTime is what all threads of a process have used: its CPU clock (CPUCLOCK_SCHED of include/linux/posix-timers_types.h).
// It is false if there is no such process.
func CPUTime(pid int) (time.Duration, bool) {
	const sched = 2
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid)<<3|sched, &t); err != nil {
		return 0, false
	}
	return time.Duration(t.Nano()), true
}
