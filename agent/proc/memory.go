package proc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

const (
	// MaxRead bounds the bytes of one Read or ReadBatch, all ranges together.
	MaxRead = 4 << 20
	// MaxRanges bounds the ranges of one ReadBatch.
	MaxRanges = 1 << 16
)

// Memory reads the address space of one process. It implements vmruntime.Memory, may be used from several goroutines
// at once, and takes no longer than its pool's deadline plus the wait for a free worker.
//
// It never names another process's memory after this one. process_vm_readv(2) goes by pid, so after each call, and
// before its result is handed out, two descriptors opened at the start must still be valid: a pidfd, which tells that
// the process lives and its pid is therefore not used again, and /proc/PID/mem, which is bound to the address space
// and tells that no other program was executed. One case is missed: a process whose address space outlives its own
// execve because it shares it with another process (CLONE_VM without CLONE_THREAD).
type Memory struct {
	id    Identity
	pool  *Pool
	pidfd *os.File // readable when the process has ended: pidfd_open(2)
	space *os.File // /proc/PID/mem
	pages *os.File // /proc/PID/pagemap; nil if it cannot be had
}

var _ vmruntime.Memory = (*Memory)(nil)

// OpenMemory opens the memory of process id, whose Exec is taken to be current. It needs the right to ptrace the
// process: CAP_SYS_PTRACE, or the same user. The caller closes it, and may do so during a read.
func OpenMemory(root Root, id Identity, pool *Pool) (*Memory, error) {
	space, err := os.Open(root.path(id.PID, "mem"))
	if err != nil {
		return nil, explain(id.PID, "open memory", err)
	}
	fd, err := unix.PidfdOpen(id.PID, 0)
	if err != nil {
		space.Close()
		return nil, explain(id.PID, "open pidfd", err)
	}
	m := &Memory{id: id, pool: pool, pidfd: os.NewFile(uintptr(fd), "pidfd"), space: space}
	m.pages, _ = os.Open(root.path(id.PID, "pagemap")) // without it no page is known to be there
	// If that process has the pid now and its address space lives, both descriptors are its own: a pid does not
	// return to a process.
	if err := errors.Join(root.Check(id), m.alive()); err != nil {
		m.Close()
		return nil, fmt.Errorf("open memory: %w", err)
	}
	return m, nil
}

// Identity returns whose memory it is.
func (m *Memory) Identity() Identity { return m.id }

// Close releases the descriptors; reads fail from now on.
func (m *Memory) Close() error {
	// In this order: alive asks the pidfd first, so no read that is under way succeeds half closed.
	err := errors.Join(m.pidfd.Close(), m.space.Close())
	if m.pages != nil {
		err = errors.Join(err, m.pages.Close())
	}
	return err
}

// Read fills p from the target's address addr, or fails and leaves p as it was.
func (m *Memory) Read(addr uint64, p []byte) error {
	r := []vmruntime.Range{{Addr: addr, Buf: p}}
	if err := m.ReadBatch(r); err != nil {
		return err
	}
	if !r[0].OK {
		return fmt.Errorf("read %d bytes at %#x of process %d: %w", len(p), addr, m.id.PID, ErrUnmapped)
	}
	return nil
}

// ReadBatch fills as many of the ranges as it can and marks those with OK; the others are left as they were. Empty
// ranges are OK. An error means that no range is. Each 1,024 ranges cost one system call, as does each unreadable one.
func (m *Memory) ReadBatch(ranges []vmruntime.Range) error {
	total := 0
	for i := range ranges {
		ranges[i].OK = false
		// Summed only while in bounds, so that this cannot overflow.
		if total += min(len(ranges[i].Buf), MaxRead+1); total > MaxRead || i >= MaxRanges {
			return fmt.Errorf("read %d ranges of process %d: over %d bytes or %d ranges: %w",
				len(ranges), m.id.PID, MaxRead, MaxRanges, ErrTooLarge)
		}
	}
	b := newBatch(ranges, total)
	read := func(c *call) error {
		if err := b.read(m.id.PID, c.here); err != nil {
			return explain(m.id.PID, "read memory", err)
		}
		c.here()
		return m.alive()
	}
	var err error = errAbsent
	if m.pages != nil {
		where := slices.Clone(ranges) // an abandoned call goes on to look at them
		err = m.pool.do(context.Background(), m.id.PID, present, func(c *call) error {
			c.here()
			if err := resident(m.pages, where, uint64(os.Getpagesize())); err != nil {
				return err
			}
			return read(c)
		})
	}
	if errors.Is(err, errAbsent) {
		err = m.pool.do(context.Background(), m.id.PID, absent, read)
	}
	if err != nil {
		// The batch may still be written to by the abandoned call, and is left to it.
		return err
	}
	b.deliver(ranges)
	return nil
}

// alive returns ErrGone if the process ended or executed another program since the memory was opened.
func (m *Memory) alive() error {
	ended := false
	raw, err := m.pidfd.SyscallConn()
	if err != nil {
		return fmt.Errorf("pidfd of process %d: %w", m.id.PID, err)
	}
	// Control keeps the descriptor from being closed, and so from being used again, meanwhile.
	err = raw.Control(func(fd uintptr) {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(poll, 0)
		for err == unix.EINTR {
			n, err = unix.Poll(poll, 0)
		}
		ended = err != nil || n > 0
	})
	if err != nil || ended {
		return fmt.Errorf("process %v: %w", m.id, ErrGone)
	}
	// mem_rw in fs/proc/base.c: nothing can be read from an address that no process can map, which is EIO as long as
	// the address space exists, and end of file afterwards.
	const neverMapped = 1<<63 - 4096
	_, err = m.space.ReadAt(make([]byte, 1), neverMapped)
	if errors.Is(err, io.EOF) || errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("address space of process %v: %w", m.id, ErrGone)
	}
	return nil
}
