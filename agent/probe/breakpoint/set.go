// Package breakpoint sets hardware breakpoints in threads: a Set for a short window, and Standing
// ones for as long as their owner refills them. A Policy says on which machines that is safe.
package breakpoint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Bounds of one Set. x86-64 has four debug registers per thread; one is left for debuggers.
const (
	MaxAddresses = 3
	MaxThreads   = 256 // 768 descriptors, and some 15 ms to open them
	MaxHits      = 1 << 12
)

var (
	// ErrBusy: no thread has enough free debug registers.
	ErrBusy = errors.New("the debug registers of all threads are in use: end other users of hardware " +
		"breakpoints there (debuggers, perf record -e mem:)")
	// ErrThreadsGone: none of the threads exists any more.
	ErrThreadsGone = errors.New("the threads have ended")
)

// A Set runs a program whenever one of some threads is about to execute one of some addresses in
// user mode: the registers are those before the instruction.
//
// Each pair of thread and address is one perf event (PERF_TYPE_BREAKPOINT, linux/hw_breakpoint.h).
// Those of a thread are a group: they are scheduled together, so that counts of one thread's
// addresses can be compared. An event disables itself after its limit of hits, even if the process
// that opened it hangs. Then it is used up, since on Linux 6.18 at least a refreshed one traps
// without counting. So events are opened for one short window and closed after it. The kernel
// closes them when the agent ends in any way, and removes them from a thread on exec.
//
// Threads that begin later have no breakpoints: inherited events cannot have a limit (EINVAL), and
// would go on trapping if the agent hung.
type Set struct {
	Busy int // threads without enough free debug registers: left out
	Gone int // threads that had ended: left out

	groups [][]int // descriptors of each thread's events, the leader first
	limit  int
	armed  bool
}

// NewSet opens events for up to MaxAddresses addresses in each of up to MaxThreads threads, in the
// given order. Nothing traps before Arm. Each event counts at most limit hits, up to MaxHits, among
// those for which prog returns 1.
func NewSet(prog *ebpf.Program, addresses []uint64, tids []int, limit int) (_ *Set, err error) {
	if len(addresses) < 1 || len(addresses) > MaxAddresses || len(tids) > MaxThreads || limit < 1 ||
		limit > MaxHits {
		return nil, fmt.Errorf("%d addresses in %d threads for %d hits: %w", len(addresses), len(tids), limit,
			unix.EINVAL)
	}
	if err := catchLostTraps(); err != nil { // breakpoints may be this process's own
		return nil, err
	}
	b := &Set{limit: limit}
	defer func() {
		if err != nil {
			b.Close()
		}
	}()
	for _, tid := range tids {
		group, err := openGroup(prog, addresses, tid, limit)
		switch {
		case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EBUSY):
			b.Busy++
		case errors.Is(err, unix.ESRCH):
			b.Gone++
		case err != nil:
			return nil, err
		default:
			b.groups = append(b.groups, group)
		}
	}
	switch {
	case len(b.groups) > 0:
		return b, nil
	case b.Busy > 0:
		return nil, ErrBusy
	}
	return nil, ErrThreadsGone
}

// openGroup opens a thread's events: all of them, or none.
func openGroup(prog *ebpf.Program, addresses []uint64, tid, limit int) (group []int, err error) {
	defer func() {
		if err != nil {
			closeAll(group)
			group = nil
		}
	}()
	leader := -1
	for _, address := range addresses {
		fd, err := unix.PerfEventOpen(event(address, leader < 0), tid, -1, leader, unix.PERF_FLAG_FD_CLOEXEC)
		if err != nil {
			return group, explain(tid, err)
		}
		group = append(group, fd)
		if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_BPF, prog.FD()); err != nil {
			return group, fmt.Errorf("attach to breakpoint: %w", err)
		}
		if leader < 0 {
			leader = fd
			continue
		}
		// It is enabled already, subject to the leader: this only sets the limit. Arm sets the
		// leader's.
		if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_REFRESH, limit); err != nil {
			return group, fmt.Errorf("limit breakpoint: %w", err)
		}
	}
	return group, nil
}

const (
	execute      = 4       // HW_BREAKPOINT_X of linux/hw_breakpoint.h
	removeOnExec = 1 << 36 // perf_event_attr.remove_on_exec of linux/perf_event.h (5.13)
)

func event(address uint64, leader bool) *unix.PerfEventAttr {
	attr := &unix.PerfEventAttr{
		Type: unix.PERF_TYPE_BREAKPOINT, Size: unix.PERF_ATTR_SIZE_VER5, Bp_type: execute,
		Ext1: address, Ext2: 8, // bp_addr, bp_len: sizeof(long) on x86-64
		Sample:      1,
		Read_format: unix.PERF_FORMAT_TOTAL_TIME_ENABLED | unix.PERF_FORMAT_TOTAL_TIME_RUNNING,
		Bits:        unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv | removeOnExec,
	}
	if runtime.GOARCH == "arm64" {
		attr.Ext2 = 4 // an instruction
	}
	if leader {
		attr.Bits |= unix.PerfBitDisabled
	}
	return attr
}

func explain(tid int, err error) error {
	switch {
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return fmt.Errorf("set breakpoint in thread %d: %w: needs CAP_PERFMON and the sysctl "+
			"kernel.perf_event_paranoid at 2 or below, or CAP_SYS_ADMIN", tid, err)
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		return fmt.Errorf("set breakpoint in thread %d: %w: raise the limit on open files (ulimit -n, or "+
			"LimitNOFILE= of a systemd unit): %d for each thread", tid, err, MaxAddresses)
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENODEV):
		return fmt.Errorf("set breakpoint in thread %d: %w: this kernel or machine has no hardware breakpoints", tid,
			err)
	}
	return fmt.Errorf("set breakpoint in thread %d: %w", tid, err)
}

// Threads returns how many threads have all breakpoints.
func (b *Set) Threads() int { return len(b.groups) }

// Arm enables the breakpoints, one thread after the other. A thread that has ended meanwhile is
// skipped.
func (b *Set) Arm() error {
	b.armed = true
	for _, group := range b.groups {
		if err := unix.IoctlSetInt(group[0], unix.PERF_EVENT_IOC_REFRESH, b.limit); err != nil {
			return fmt.Errorf("arm breakpoints: %w", err)
		}
	}
	return nil
}

// Disarm disables all breakpoints.
func (b *Set) Disarm() error {
	if !b.armed {
		return nil
	}
	b.armed = false
	var errs []error
	for _, group := range b.groups {
		errs = append(errs, unix.IoctlSetInt(group[0], unix.PERF_EVENT_IOC_DISABLE, 0))
	}
	return errors.Join(errs...)
}

// Ran returns how long the armed threads were on a CPU, in total, including their traps.
func (b *Set) Ran() (time.Duration, error) {
	var sum uint64
	for _, group := range b.groups {
		var answer [3 * 8]byte // count, time enabled, time running: ns
		if _, err := unix.Read(group[0], answer[:]); err != nil {
			return 0, fmt.Errorf("read breakpoint: %w", err)
		}
		sum += binary.NativeEndian.Uint64(answer[16:])
	}
	return time.Duration(sum), nil
}

// Close disarms and releases the debug registers.
func (b *Set) Close() error {
	err := b.Disarm()
	for _, group := range b.groups {
		err = errors.Join(err, closeAll(group))
	}
	b.groups = nil
	return err
}

func closeAll(fds []int) error {
	var errs []error
	for _, fd := range fds {
		errs = append(errs, unix.Close(fd))
	}
	return errors.Join(errs...)
}
