package hitcost

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// ErrInterrupt says that the time of an interrupt cannot be measured here.
var ErrInterrupt = errors.New("the cost of an interrupt cannot be measured with one CPU, or on a busy CPU")

// Interrupt returns the time that a thread loses when another CPU interrupts its own, as the kernel
// does when it changes code or drops mappings of pages. It is longer in virtual machines than on
// bare metal. It is the median of some tens of interrupts of a thread of this process, at most 100
// us. The measurement takes 50 to 200 ms, during which two CPUs are busy. The error is
// [ErrInterrupt] if threads of this process cannot run at the same time for long enough.
//
// The interrupts are those of membarrier(2): MEMBARRIER_CMD_PRIVATE_EXPEDITED interrupts the CPUs
// that run threads of the process.
func Interrupt() (time.Duration, error) {
	if runtime.GOMAXPROCS(0) < 2 {
		return 0, ErrInterrupt
	}
	const interrupt, register = 1 << 3, 1 << 4 // enum membarrier_cmd (include/uapi/linux/membarrier.h)
	if err := membarrier(register); err != nil {
		return 0, err
	}
	return lostTo(func() error { return membarrier(interrupt) })
}

// lostTo returns the time that a thread of this process loses to such an interrupt.
func lostTo(interrupt func() error) (time.Duration, error) {
	const (
		rounds = 21
		pause  = 2 * time.Millisecond
		limit  = 200 * time.Millisecond
		most   = 100 * time.Microsecond // longer delays come from another guest of the host
	)
	begin := time.Now()
	s := spinner{stop: make(chan struct{})}
	defer close(s.stop)
	started := make(chan int)
	go s.spin(started)
	tid := <-started
	turn := func() bool { // waits until the thread runs
		for n := s.turns.Load(); s.turns.Load() < n+10; {
			if time.Since(begin) > limit {
				return false
			}
		}
		return true
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var lost []time.Duration
	for len(lost) < rounds {
		time.Sleep(pause)
		before, err := switches(tid)
		if err != nil {
			return 0, err
		}
		s.round.Add(1)
		if !turn() {
			break
		}
		if err := interrupt(); err != nil {
			return 0, err
		}
		if !turn() {
			break
		}
		took := s.longest.Load()
		after, err := switches(tid)
		if err != nil {
			return 0, err
		}
		if after == before { // else it lost its CPU
			lost = append(lost, time.Duration(took))
		}
	}
	if len(lost) < rounds/2 {
		return 0, ErrInterrupt
	}
	slices.Sort(lost)
	return min(lost[len(lost)/2], most), nil
}

// A spinner is the interrupted thread: it reads the clock continuously.
type spinner struct {
	turns, longest atomic.Int64 // the longest one of the round, in ns
	round          atomic.Int64
	stop           chan struct{}
}

func (s *spinner) spin(started chan<- int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	started <- unix.Gettid()
	var round int64
	var longest time.Duration
	for last := time.Now(); ; {
		select {
		case <-s.stop:
			return
		default:
		}
		now := time.Now()
		if r := s.round.Load(); r != round {
			round, longest = r, 0
		} else {
			longest = max(longest, now.Sub(last))
		}
		s.longest.Store(int64(longest))
		s.turns.Add(1)
		last = now
	}
}

// switches is the number of context switches of a thread of this process.
func switches(tid int) (string, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/status", tid))
	if err != nil {
		return "", fmt.Errorf("count the context switches of a thread: %w", err)
	}
	_, count, _ := strings.Cut(string(status), "\nnonvoluntary_ctxt_switches:")
	return count, nil
}

func membarrier(command int) error {
	if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, uintptr(command), 0, 0); errno != 0 {
		return fmt.Errorf("membarrier: %w", errno)
	}
	return nil
}
