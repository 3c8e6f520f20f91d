package proc

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

const (
	// MaxRead bounds the bytes of one Read or ReadBatch, all ranges together.
	MaxRead = 4 << 20
	// MaxRanges bounds the ranges of one ReadBatch.
	MaxRanges = 1 << 16
)

// Memory reads the address space of one process. It implements vmruntime.Memory, may be used from
// several goroutines at once, and takes no longer than its pool's deadline plus the wait for a free
// worker.
//
// It never names another process's memory after this one. process_vm_readv(2) goes by pid, so after
// each call, and before its result is handed out, two descriptors opened at the start must still be
// valid: a pidfd, which proves that the process lives and its pid is therefore not used again, and
// /proc/PID/mem, which is bound to the address space and proves that no other program was executed.
// One case is missed: a process whose address space outlives its own execve because it shares it
// with another process (CLONE_VM without CLONE_THREAD).
type Memory struct {
	id    Identity
	pool  *Pool
	pidfd *os.File // readable when the process has ended: pidfd_open(2)
	space *os.File // /proc/PID/mem
	pages *os.File // /proc/PID/pagemap; nil if it cannot be had

	pidfdConn, spaceConn syscall.RawConn
}

var _ vmruntime.Memory = (*Memory)(nil)

// OpenMemory opens the memory of process id, whose Exec is taken to be current. It needs the right
// to ptrace the process: CAP_SYS_PTRACE, or the same user. The caller closes it, and may do so
// during a read.
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
	m.pidfdConn, _ = m.pidfd.SyscallConn() // fails for a closed file only
	m.spaceConn, _ = m.space.SyscallConn()
	m.pages, _ = os.Open(root.path(id.PID, "pagemap")) // without it no page is known to be there
	// If that process has the pid now and its address space lives, both descriptors are its own: a
	// pid does not return to a process.
	if err := errors.Join(root.Check(id), m.alive()); err != nil {
		m.Close()
		return nil, fmt.Errorf("open memory: %w", err)
	}
	return m, nil
}

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
		return m.unmapped(addr, len(p))
	}
	return nil
}

func (m *Memory) unmapped(addr uint64, n int) error {
	return fmt.Errorf("read %d bytes at %#x of process %d: %w", n, addr, m.id.PID, ErrUnmapped)
}

// ReadBatch fills as many of the ranges as it can and marks those with OK; the others are left as
// they were. Empty ranges are OK. An error means that no range is. Each 1,024 ranges cost one
// system call, as does each unreadable one.
func (m *Memory) ReadBatch(ranges []vmruntime.Range) error {
	b, err := m.batch(ranges)
	if err != nil {
		return err
	}
	err = errAbsent
	if m.pages != nil {
		err = m.pool.do(context.Background(), m.id.PID, present, func(c *call) error { return m.readPresent(b, c, nil) })
	}
	return m.finish(b, ranges, err)
}

// batch returns a batch for ranges, unless they are beyond the bounds. None of them is OK so far.
func (m *Memory) batch(ranges []vmruntime.Range) (*batch, error) {
	total := 0
	for i := range ranges {
		ranges[i].OK = false
		// Summed only while in bounds, so that this cannot overflow.
		if total += min(len(ranges[i].Buf), MaxRead+1); total > MaxRead || i >= MaxRanges {
			return nil, fmt.Errorf("read %d ranges of process %d: over %d bytes or %d ranges: %w",
				len(ranges), m.id.PID, MaxRead, MaxRanges, ErrTooLarge)
		}
	}
	return newBatch(ranges, total), nil
}

// readPresent reads a batch whose pages are all there; otherwise it returns errAbsent.
func (m *Memory) readPresent(b *batch, c *call, seen *seenPages) error {
	c.here()
	if err := b.resident(m.pages, uint64(os.Getpagesize()), seen); err != nil {
		return err
	}
	return m.read(b, c)
}

// read reads a batch.
func (m *Memory) read(b *batch, c *call) error {
	if err := b.read(m.id.PID, c.here); err != nil {
		return explain(m.id.PID, "read memory", err)
	}
	c.here()
	return m.alive()
}

// finish has the pages supplied that a read of the batch, which returned err, found absent, and
// fills the ranges.
func (m *Memory) finish(b *batch, ranges []vmruntime.Range, err error) error {
	if errors.Is(err, errAbsent) {
		err = m.pool.do(context.Background(), m.id.PID, absent, func(c *call) error { return m.read(b, c) })
	}
	if err != nil {
		// The batch may still be written to by an abandoned call, and is left to it.
		return err
	}
	b.deliver(ranges)
	return nil
}

// alive returns ErrGone if the process ended or executed another program since the memory was
// opened.
func (m *Memory) alive() error {
	ended := false
	// Control keeps a descriptor from being closed, and so from being used again, meanwhile.
	err := m.pidfdConn.Control(func(fd uintptr) {
		poll := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(poll[:], 0)
		for err == unix.EINTR {
			n, err = unix.Poll(poll[:], 0)
		}
		ended = err != nil || n > 0
	})
	if err != nil || ended {
		return fmt.Errorf("process %v: %w", m.id, ErrGone)
	}
	// See mem_rw in fs/proc/base.c: nothing can be read from an address that no process can map,
	// which is EIO as long as the address space exists, and end of file afterwards.
	const neverMapped = 1<<63 - 4096
	err = m.spaceConn.Control(func(fd uintptr) {
		var b [1]byte
		n, err := unix.Pread(int(fd), b[:], neverMapped)
		for err == unix.EINTR {
			n, err = unix.Pread(int(fd), b[:], neverMapped)
		}
		ended = err == nil && n == 0
	})
	if err != nil || ended {
		return fmt.Errorf("address space of process %v: %w", m.id, ErrGone)
	}
	return nil
}

// maxIovecs is UIO_MAXIOV of include/uapi/linux/uio.h: the ranges that one process_vm_readv takes.
const maxIovecs = 1024

// maxKept is the largest buffer that is kept for the next batch. The collector takes it if there is
// none for a while.
const maxKept = 512 << 10

// A batch reads into memory of its own, because an abandoned read may go on long after its caller
// has gone, and must not write to what that caller has since used for something else.
type batch struct {
	remote []unix.RemoteIovec
	ok     []bool
	buf    []byte   // the ranges one after the other
	pages  []uint64 // the pages that hold them, by number
}

var batches = sync.Pool{New: func() any { return new(batch) }}

// newBatch returns a batch for the ranges, total bytes long. The caller has checked the bounds.
func newBatch(ranges []vmruntime.Range, total int) *batch {
	b := batches.Get().(*batch)
	b.remote, b.ok = b.remote[:0], b.ok[:0]
	if cap(b.buf) < total {
		b.buf = make([]byte, total)
	}
	b.buf = b.buf[:total]
	for _, r := range ranges {
		b.remote = append(b.remote, unix.RemoteIovec{Base: uintptr(r.Addr), Len: len(r.Buf)})
		b.ok = append(b.ok, len(r.Buf) == 0)
	}
	return b
}

// read fetches the ranges from the process; begin is called before each system call. Ranges that
// cannot be read are skipped.
func (b *batch) read(pid int, begin func()) error {
	done := 0 // bytes of buf that are dealt with
	for first := 0; first < len(b.remote); {
		window := b.remote[first:min(first+maxIovecs, len(b.remote))]
		want := 0
		for _, r := range window {
			want += r.Len
		}
		n := 0
		if want > 0 {
			local := unix.Iovec{Base: &b.buf[done]}
			local.SetLen(want)
			var err error
			begin()
			n, err = unix.ProcessVMReadv(pid, []unix.Iovec{local}, window, 0)
			switch {
			case err == nil:
			case errors.Is(err, unix.EFAULT), errors.Is(err, unix.EIO), errors.Is(err, unix.EHWPOISON):
				n = 0 // not even the first range could be read
			default:
				return err
			}
		}
		// The kernel stops at the first page that it cannot read: the ranges before it are whole,
		// the range it is in is not, and those after it are tried again.
		i := 0
		for ; i < len(window) && n >= window[i].Len; i++ {
			n -= window[i].Len
			done += window[i].Len
			b.ok[first+i] = true
		}
		if i < len(window) {
			done += window[i].Len
			i++
		}
		first += i
	}
	return nil
}

// deliver copies what was read to the ranges and gives the batch back.
func (b *batch) deliver(ranges []vmruntime.Range) {
	off := 0
	for i := range ranges {
		if ranges[i].OK = b.ok[i]; b.ok[i] {
			copy(ranges[i].Buf, b.buf[off:])
		}
		off += len(ranges[i].Buf)
	}
	if cap(b.buf) <= maxKept && cap(b.pages) <= maxKept/8 {
		batches.Put(b)
	}
}

// What a page of another process is before anybody touches it. A read of a page that is in memory,
// or in swap, cannot wait for anybody but the kernel. Any other page has to be supplied: by the
// kernel, or by a file system or a userfaultfd handler of the target's making, which may never do
// so. The kernel's pagemap says which it is without touching the page
// (Documentation/admin-guide/mm/pagemap.rst).
const (
	pagePresent = 1 << 63
	pageSwapped = 1 << 62

	pageEntry = 8 // bytes of pagemap for a page
	// pageGap is how many pages that nobody asked for are looked at rather than begin another
	// system call.
	pageGap = 64
	// pageRun is how many pages are looked at in one system call.
	pageRun = 512
)

// errAbsent: some of the pages have to be supplied.
var errAbsent = errors.New("pages are not in memory")

// seenPages are pages that were in memory not long ago. The zero value has none.
type seenPages struct {
	pages [2048]uint64 // by their lowest bits: number of the page, plus 1
	since time.Time    // when the first of them was seen
}

// seenFor is how long a page counts as being in memory. A process that discards the page within that
// time, and never lets it be supplied, blocks the worker that reads it: see Direct.
const seenFor = 10 * time.Second

// begin forgets pages that were seen too long ago.
func (s *seenPages) begin(now time.Time) {
	if now.Sub(s.since) > seenFor {
		*s = seenPages{since: now}
	}
}

func (s *seenPages) add(page uint64) { s.pages[page%uint64(len(s.pages))] = page + 1 }

func (s *seenPages) has(page uint64) bool { return s.pages[page%uint64(len(s.pages))] == page+1 }

// resident returns errAbsent unless all pages of the batch are in memory or in swap, or were a
// moment ago, if seen is not nil. It may change at once.
func (b *batch) resident(pagemap *os.File, pageSize uint64, seen *seenPages) error {
	pages := b.pages[:0]
	for _, r := range b.remote {
		addr, n := uint64(r.Base), uint64(r.Len)
		if n == 0 || addr+n < addr {
			continue // nothing to read there
		}
		for page, last := addr/pageSize, (addr+n-1)/pageSize; page <= last; page++ {
			if n := len(pages); (n == 0 || pages[n-1] != page) && (seen == nil || !seen.has(page)) {
				pages = append(pages, page)
			}
		}
	}
	b.pages = pages
	slices.Sort(pages)
	pages = slices.Compact(pages)
	var entries [pageRun * pageEntry]byte
	for len(pages) > 0 {
		first, n := pages[0], 1
		for n < len(pages) && pages[n]-pages[n-1] <= pageGap && pages[n]-first < pageRun {
			n++
		}
		run := entries[:(pages[n-1]-first+1)*pageEntry]
		if got, _ := pagemap.ReadAt(run, int64(first*pageEntry)); got < len(run) {
			return errAbsent // beyond what a process can map, or it is gone: the read will show
		}
		for _, page := range pages[:n] {
			if binary.NativeEndian.Uint64(run[(page-first)*pageEntry:])&(pagePresent|pageSwapped) == 0 {
				return errAbsent
			}
			if seen != nil {
				seen.add(page)
			}
		}
		pages = pages[n:]
	}
	return nil
}
