// Package ring reads ring buffers that BPF programs write (BPF_MAP_TYPE_RINGBUF), one or several as
// one stream. It does two things that github.com/cilium/ebpf/ringbuf does not. If a writer is
// preempted while it writes a record, this reader sleeps and checks again, where that one spins.
// And it merges the records of several rings in order of time.
package ring

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// ErrFlushed is what Next returns after Flush.
var ErrFlushed = errors.New("ring buffer flushed")

const (
	// An unfinished record is checked again after firstPause, then after twice that, up to
	// lastPause.
	firstPause, lastPause = 20 * time.Microsecond, 5 * time.Millisecond
	// maxFlushPause is how long a flush waits for an unfinished record: its writer may not run as
	// long as others keep its CPU.
	maxFlushPause = time.Second
)

// A Reader reads rings. Any goroutine may call Flush, Flushing, Stats and Close; only one may call
// everything else.
type Reader struct {
	poll     *os.File // an epoll instance of all rings
	deadline time.Time
	record   []byte
	flushes  atomic.Uint64 // calls of Flush
	flushed  atomic.Uint64 // number of these calls that Next has answered
	closed   atomic.Bool
	stats    struct{ pauses, unfinished atomic.Uint64 }

	mu      sync.Mutex // held by Next, so that Close does not unmap its memory
	buffers []*buffer
}

// Stats are those of a Reader since it was made.
type Stats struct {
	Pauses     uint64 // times that the reader slept because a record was unfinished
	Unfinished uint64 // flushes that ended before such a record was complete
}

// NewReader returns a reader of these rings, which it does not own. With several rings, records
// must begin with their time: 8 bytes, ns of any one clock. The caller closes it.
func NewReader(rings ...*ebpf.Map) (_ *Reader, err error) {
	r, fd, err := newReader()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			r.Close()
		}
	}()
	for _, m := range rings {
		b, err := openBuffer(m)
		if err != nil {
			return nil, err
		}
		r.buffers = append(r.buffers, b)
		event := unix.EpollEvent{Events: unix.EPOLLIN}
		if err := unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, m.FD(), &event); err != nil {
			return nil, fmt.Errorf("wait for %v: %w", m, err)
		}
	}
	return r, nil
}

// newReader returns a reader without rings, and its epoll instance.
func newReader() (_ *Reader, fd int, err error) {
	fd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, 0, fmt.Errorf("create epoll instance: %w", err)
	}
	err = unix.SetNonblock(fd, true) // the runtime waits for it without a thread
	r := &Reader{poll: os.NewFile(uintptr(fd), "ring buffers")}
	if err = errors.Join(err, r.poll.SetReadDeadline(time.Time{})); err != nil {
		r.poll.Close()
		return nil, 0, fmt.Errorf("prepare epoll instance: %w", err)
	}
	return r, fd, nil
}

// SetDeadline makes Next return os.ErrDeadlineExceeded if there is no record at that time; the zero
// time means never.
func (r *Reader) SetDeadline(t time.Time) { r.deadline = t }

// Hasten is SetDeadline if that is sooner than the present deadline.
func (r *Reader) Hasten(t time.Time) {
	if r.deadline.IsZero() || t.Before(r.deadline) {
		r.deadline = t
	}
}

// Next returns the oldest record, which is valid until the next call. If there is none, it waits
// until the kernel wakes the reader, the deadline has passed, or Flush is called, and then checks
// once more. os.ErrClosed: the Reader was closed.
func (r *Reader) Next() ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var busySince time.Time
	pause := firstPause
	for {
		flushes := r.flushes.Load() // before the check that must find everything
		flushing := flushes != r.flushed.Load()
		state, err := r.read()
		switch {
		case err != nil:
			return nil, err
		case state == ready:
			return r.record, nil
		}
		now := time.Now()
		if state == busy && busySince.IsZero() {
			busySince = now
		}
		waited := state == busy && now.Sub(busySince) > maxFlushPause
		switch {
		case flushing && (state == empty || waited):
			r.flushed.Store(flushes)
			if waited {
				r.stats.unfinished.Add(1)
			}
			return nil, ErrFlushed
		case !flushing && !r.deadline.IsZero() && !now.Before(r.deadline):
			return nil, os.ErrDeadlineExceeded
		case state == busy:
			r.stats.pauses.Add(1)
			time.Sleep(pause)
			pause = min(2*pause, lastPause)
		default:
			if err := r.wait(); err != nil {
				return nil, err
			}
		}
	}
}

// read takes the record with the lowest time, or none while one that may be older is unfinished.
func (r *Reader) read() (state, error) {
	if r.buffers == nil {
		return empty, r.failed(os.ErrClosed)
	}
	from, oldest, err := r.oldest()
	if from != nil && len(r.buffers) > 1 {
		// A ring that was empty may have received an older record before this one was written: all
		// such records are visible by now.
		from, oldest, err = r.oldest()
	}
	if err != nil || from == nil {
		return oldest.state, err
	}
	r.record = append(r.record[:0], oldest.record...)
	from.take(oldest.end)
	return ready, nil
}

// oldest examines the next records of all rings. The buffer is nil if none may be taken.
func (r *Reader) oldest() (from *buffer, oldest head, _ error) {
	for _, b := range r.buffers {
		h, err := b.peek()
		if err != nil || h.state == busy {
			return nil, h, err
		}
		if h.state == ready && (from == nil || recordTime(h.record) < recordTime(oldest.record)) {
			from, oldest = b, h
		}
	}
	return from, oldest, nil
}

// wait returns when something may have changed.
func (r *Reader) wait() error {
	if err := r.poll.SetReadDeadline(r.deadline); err != nil {
		return r.failed(err)
	}
	if r.Flushing() { // Flush's own deadline may just have been replaced
		return nil
	}
	conn, err := r.poll.SyscallConn()
	if err != nil {
		return r.failed(err)
	}
	woken := false
	err = conn.Read(func(uintptr) bool {
		if woken || !r.Empty() { // a record after this check wakes the reader
			return true
		}
		woken = true
		return false
	})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil // Next checks itself whose deadline it was
	}
	return r.failed(err)
}

// failed explains an error of the epoll instance.
func (r *Reader) failed(err error) error {
	if err == nil {
		return nil
	}
	if r.closed.Load() {
		err = os.ErrClosed
	}
	return fmt.Errorf("wait for ring buffers: %w", err)
}

// Empty reports whether there is no record after the one that Next returned last.
func (r *Reader) Empty() bool {
	for _, b := range r.buffers {
		if b.bytes() > 0 {
			return false
		}
	}
	return true
}

// Flush makes Next return every record present at the call, and then ErrFlushed, once for all calls
// until then. It waits up to one second for unfinished records.
func (r *Reader) Flush() error {
	r.flushes.Add(1)
	if err := r.poll.SetReadDeadline(time.Unix(1, 0)); err != nil {
		return r.failed(err)
	}
	return nil
}

// Flushing reports whether Next has yet to answer a Flush.
func (r *Reader) Flushing() bool { return r.flushes.Load() != r.flushed.Load() }

// Size is the size of all rings, in bytes.
func (r *Reader) Size() int {
	size := 0
	for _, b := range r.buffers {
		size += len(b.data) / 2
	}
	return size
}

// Stats returns the statistics so far.
func (r *Reader) Stats() Stats {
	return Stats{Pauses: r.stats.pauses.Load(), Unfinished: r.stats.unfinished.Load()}
}

// Close ends a waiting Next, and frees the Reader's resources.
func (r *Reader) Close() error {
	if r.closed.Swap(true) {
		return nil
	}
	errs := []error{r.poll.Close()} // ends waiting
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.buffers {
		errs = append(errs, b.close())
	}
	r.buffers = nil
	return errors.Join(errs...)
}
