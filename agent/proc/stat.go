package proc

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
)

// maxStat bounds /proc/PID/stat: 52 numbers of at most 20 digits and a name of at most 64 bytes fit twice.
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

// parseStat splits at the last parenthesis: a process may call itself "x) R 1 (", the numbers after its name cannot.
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
