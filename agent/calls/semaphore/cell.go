package semaphore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/proc"
)

// A cell is the semaphore of one process: the one place of this program that writes into another. Its owner takes care
// that one call runs at a time.
//
// The counter is changed by reading it and writing it back, which two processes could do at the same moment. Those
// that might are tracers that a person starts beside the agent; see the package's description for how they are told.
type cell struct {
	mem  *os.File // /proc/PID/mem, for reading and writing
	addr int64
	set  bool // the 1 in it is this cell's
}

// errHeld: the semaphore has a value that this agent never gives it.
var errHeld = errors.New("another tracer holds the semaphore of php:function__entry")

// openMemory opens the memory of a process for reading and writing. It needs the right to ptrace the process.
func openMemory(root proc.Root, pid int) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(root.String(), strconv.Itoa(pid), "mem"), os.O_RDWR, 0)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, unix.ESRCH):
		return nil, fmt.Errorf("open memory of process %d: %w", pid, proc.ErrGone)
	case errors.Is(err, os.ErrPermission):
		return nil, fmt.Errorf("open memory of process %d for writing: %w: grant CAP_SYS_PTRACE, or run as the user of that process",
			pid, proc.ErrDenied)
	}
	return f, err
}

// value reads the semaphore. ErrGone says that the address space is no more.
func (c *cell) value() (uint16, error) {
	var b [2]byte
	if err := transfer(c.mem, b[:], c.addr, unix.Pread); err != nil {
		return 0, fmt.Errorf("read semaphore: %w", err)
	}
	return binary.NativeEndian.Uint16(b[:]), nil
}

func (c *cell) put(v uint16) error {
	var b [2]byte
	binary.NativeEndian.PutUint16(b[:], v)
	if err := transfer(c.mem, b[:], c.addr, unix.Pwrite); err != nil {
		return fmt.Errorf("write semaphore: %w", err)
	}
	return nil
}

// arm sets the semaphore to 1 if it is 0.
func (c *cell) arm() error {
	v, err := c.value()
	switch {
	case err != nil:
		return err
	case v == 1 && c.set:
		return nil
	case v != 0:
		return errHeld
	}
	c.set = true // before it is: an interrupted write is cleared, too
	return c.put(1)
}

// clear takes back what arm did. A tracer that counted the semaphore up meanwhile keeps its share, and errHeld tells.
func (c *cell) clear() error {
	if !c.set {
		return nil
	}
	c.set = false
	v, err := c.value()
	switch {
	case err != nil:
		return err
	case v == 0:
		return nil // somebody else cleared it
	case v == 1:
		return c.put(0)
	}
	return errors.Join(c.put(v-1), errHeld)
}

// recover clears what an agent left that was killed together with its guard, or what a process inherited from a parent
// that forked during a burst. It reports whether there was anything. The caller has made sure that nobody can hold
// the semaphore rightfully: it is attached to the probe, and the process has no tracer.
func (c *cell) recover() (bool, error) {
	v, err := c.value()
	switch {
	case err != nil || v == 0:
		return false, err
	case v == 1:
		return true, c.put(0)
	}
	return false, errHeld
}

// transfer moves all of b by one call of pread or pwrite.
func transfer(mem *os.File, b []byte, addr int64, call func(fd int, b []byte, addr int64) (int, error)) error {
	// Fd is safe here, as the file is no older than its owner, and keeps no goroutine waiting.
	n, err := call(int(mem.Fd()), b, addr)
	for err == unix.EINTR {
		n, err = call(int(mem.Fd()), b, addr)
	}
	switch {
	case err == unix.EIO: // mem_rw in fs/proc/base.c: nothing is mapped there, or not so that it may be written
		return proc.ErrUnmapped
	case err != nil:
		return err
	case n == 0:
		return proc.ErrGone // mem_rw: the address space has no users any more
	case n != len(b):
		return proc.ErrUnmapped
	}
	return nil
}
