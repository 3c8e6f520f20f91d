package proc

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// userHZ is the kernel's USER_HZ, the unit of times in /proc/PID/stat: 100 on amd64 and arm64,
// whatever CONFIG_HZ is.
const userHZ = 100

// nsPerTick converts between the two clocks of Identity.Start.
const nsPerTick = 1_000_000_000 / userHZ

// An Identity is one process, for ever: pids are used again.
//
// Start comes from one of two sources that differ in resolution. BPF programs see
// task->group_leader->start_boottime in nanoseconds since boot, suspend included. /proc/PID/stat
// shows the same number divided by 10 ms and rounded down (nsec_to_clock_t in fs/proc/array.c),
// moved by the boottime offset of the reader's time namespace; agents run in the initial one, where
// that offset is zero. So identities from the two sources are compared by Same, never by ==. Two
// processes that share a pid and were started within the same 10 ms have the same identity: the
// kernel hands out pids in a circle, so only a process that chooses its pid (clone3 with set_tid)
// gets there.
type Identity struct {
	PID   int
	Start uint64 // start of the thread group leader, ns of CLOCK_BOOTTIME
	// Exec is task->self_exec_id, which changes with each execve; 0 if the identity is from /proc,
	// which does not show it.
	Exec uint32
}

// Ticks returns Start in the unit of /proc/PID/stat, 10 ms.
func (id Identity) Ticks() uint64 { return id.Start / nsPerTick }

// Same reports whether both are the same process, whatever program it runs and whichever source its
// start is from.
func (id Identity) Same(other Identity) bool {
	return id.PID == other.PID && id.Ticks() == other.Ticks()
}

// String is for logs: pid@start in seconds since boot.
func (id Identity) String() string {
	return fmt.Sprintf("%d@%.2fs", id.PID, float64(id.Ticks())/userHZ)
}

// Age is how long ago the process was started.
func (id Identity) Age() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0 // the clock exists everywhere
	}
	return time.Duration(now.Nano()) - time.Duration(id.Start)
}

// Identify returns who has the pid now. Start is rounded down to 10 ms and Exec is zero.
func (r Root) Identify(pid int) (Identity, error) {
	stat, err := r.Stat(pid)
	if err != nil {
		return Identity{}, err
	}
	return stat.Identity(), nil
}

// Check returns ErrGone if the pid is not, or no longer, that process.
func (r Root) Check(id Identity) error {
	now, err := r.Identify(id.PID)
	if err != nil {
		return err
	}
	if !now.Same(id) {
		return fmt.Errorf("process %v: pid is now %v: %w", id, now, ErrGone)
	}
	return nil
}

// maxStat bounds /proc/PID/stat: 52 numbers of at most 20 digits and a name of at most 64 bytes fit
// twice.
const maxStat = 4096

// pfKthread is PF_KTHREAD of include/linux/sched.h.
const pfKthread = 0x00200000

// A Stat is the part of /proc/PID/stat that the agent uses.
type Stat struct {
	PID        int
	Comm       string // as in Comm
	State      byte   // R, S, D, Z, …
	PPID       int
	Flags      uint32 // PF_* of include/linux/sched.h
	Threads    int
	StartTicks uint64 // start of the thread group leader, 10 ms of CLOCK_BOOTTIME: see Identity
}

// Identity is whose they are. Start is rounded down to 10 ms and Exec is zero.
func (s Stat) Identity() Identity { return Identity{PID: s.PID, Start: s.StartTicks * nsPerTick} }

// Kernel reports whether it is a kernel thread, which has no memory of its own.
func (s Stat) Kernel() bool { return s.Flags&pfKthread != 0 }

// Zombie reports whether the process ended and only waits for its parent.
func (s Stat) Zombie() bool { return s.State == 'Z' || s.State == 'X' }

// Stat reads /proc/PID/stat.
func (r Root) Stat(pid int) (Stat, error) {
	b, err := r.read(pid, maxStat, "stat")
	if err != nil {
		return Stat{}, err
	}
	s, err := parseStat(b)
	if err != nil {
		return Stat{}, fmt.Errorf("stat of process %d: %w", pid, err)
	}
	return s, nil
}

// parseStat splits at the last parenthesis: a process may call itself "x) R 1 (", the numbers after
// its name cannot.
func parseStat(b []byte) (Stat, error) {
	open, closing := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 1 || closing < open {
		return Stat{}, fmt.Errorf("no name in parentheses: %w", ErrMalformed)
	}
	// fields[i] is field i+3 in the numbering of proc_pid_stat(5).
	fields := bytes.Fields(b[closing+1:])
	const last = 22
	if len(fields) <= last-3 || len(fields[0]) != 1 {
		return Stat{}, fmt.Errorf("%d fields after the name: %w", len(fields), ErrMalformed)
	}
	var bad error
	number := func(field []byte, limit uint64) uint64 {
		n, err := strconv.ParseUint(string(field), 10, 64)
		if err != nil || n > limit {
			bad = fmt.Errorf("field %.20q: %w", field, ErrMalformed)
		}
		return n
	}
	s := Stat{
		PID:        int(number(bytes.TrimSpace(b[:open]), maxPID)),
		Comm:       printable(b[open+1 : closing]),
		State:      fields[0][0],
		PPID:       int(number(fields[4-3], maxPID)),
		Flags:      uint32(number(fields[9-3], math.MaxUint32)),
		Threads:    int(number(fields[20-3], maxPID)),
		StartTicks: number(fields[22-3], math.MaxUint64/nsPerTick), // so that it fits Identity.Start
	}
	if bad != nil {
		return Stat{}, bad
	}
	return s, nil
}
