package proc

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// A Layout tells the memory of a process apart from what it was, as far as code is concerned: Stack
// is another one when the process executes another program, and CodePages when it maps or unmaps
// code. A child that was forked has its parent's.
type Layout struct {
	Stack     uint64 // address at which the first thread's stack began: mm_struct.start_stack
	CodePages uint64 // pages that can be executed and not written: mm_struct.exec_vm
}

// Layout reads the layout of a process. It is ErrDenied if the kernel does not show it.
func (r Root) Layout(pid int) (Layout, error) {
	stat, err := r.read(pid, maxStat, "stat")
	if err != nil {
		return Layout{}, err
	}
	status, err := r.read(pid, maxStatus, "status")
	if err != nil {
		return Layout{}, err
	}
	l, err := parseLayout(stat, status, uint64(os.Getpagesize()))
	if err != nil {
		return Layout{}, fmt.Errorf("layout of process %d: %w", pid, err)
	}
	return l, nil
}

// parseLayout takes startstack from stat (proc_pid_stat(5), field 28), and adds up what task_mem of
// fs/proc/task_mmu.c divides into the program's own code and that of libraries.
func parseLayout(stat, status []byte, page uint64) (l Layout, err error) {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const startStack = 28 - 3
	if len(fields) <= startStack {
		return l, fmt.Errorf("%d fields after the name: %w", len(fields), ErrMalformed)
	}
	if l.Stack, err = strconv.ParseUint(string(fields[startStack]), 10, 64); err != nil {
		return l, fmt.Errorf("field %.20q: %w", fields[startStack], ErrMalformed)
	}
	if l.Stack == 0 {
		return l, fmt.Errorf("%w: the addresses in stat are hidden; needs CAP_SYS_PTRACE", ErrDenied)
	}
	found := 0
	for line := range bytes.Lines(status) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		if string(name) != "VmExe" && string(name) != "VmLib" {
			continue
		}
		number, unit, _ := bytes.Cut(bytes.TrimSpace(value), []byte(" "))
		kb, err := strconv.ParseUint(string(number), 10, 54)
		if err != nil || string(unit) != "kB" {
			return l, fmt.Errorf("%s %.20q: %w", name, value, ErrMalformed)
		}
		l.CodePages += kb << 10
		found++
	}
	if l.CodePages /= page; found != 2 {
		return l, fmt.Errorf("%d sizes of code: %w", found, ErrMalformed)
	}
	return l, nil
}
