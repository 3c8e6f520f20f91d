// Package ring reads ring buffers that BPF programs write (BPF_MAP_TYPE_RINGBUF), one or several as one stream. It is for what
// github.com/cilium/ebpf/ringbuf does not do: a writer may be preempted while it writes a record, and this reader then sleeps
// and looks again, where that one spins; and it puts the records of several rings into the order of their times.
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
	// A record that is being written is looked at again after firstPause, then after twice that, up to lastPause.
	firstPause, lastPause = 20 * time.Microsecond, 5 * time.Millisecond
	// maxFlushPause is how long a flush waits for a record that is being written: its writer may not run for as long as others
	// keep its CPU.
	maxFlushPause = time.Second
)

// A Reader reads rings. Flush, Flushing, Stats and Close may be called from any goroutine, everything else from one.
type Reader struct {
	poll     *os.File // an epoll instance of all rings
	deadline time.Time
	record   []byte
	flushes  atomic.Uint64 // calls of Flush
	flushed  atomic.Uint64 // of them, those that Next has answered
	closed   atomic.Bool
	stats    struct{ pauses, unfinished atomic.Uint64 }

	mu      sync.Mutex // held by Next, so that Close takes no memory from it
	buffers []*buffer
}

// Stats are of a Reader since it was made.
type Stats struct {
	Pauses     uint64 // times that the reader slept as a record was still being written
	Unfinished uint64 // flushes that ended before such a record was whole
}

// NewReader returns a reader of these rings, which it does not own. Records of several must begin with their time: 8 bytes,
// ns of any one clock. The caller closes it.
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

// newReader returns a reader of no ring, and its epoll instance.
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

// SetDeadline has Next return os.ErrDeadlineExceeded when there is no record at that time; the zero time is never.
func (r *Reader) SetDeadline(t time.Time) { r.deadline = t }

// Next returns the oldest record, which is valid until the next call. If there is none it waits until the kernel wakes the
// reader, the deadline has passed, or Flush is called, and looks once more then. os.ErrClosed: the Reader was closed.
func (r *Reader) Next() ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var busySince time.Time
	pause := firstPause
	for {
		flushes := r.flushes.Load() // before the look that is to find everything
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

// read takes the record with the lowest time, or none while one that may be older is being written.
func (r *Reader) read() (state, error) {
	if r.buffers == nil {
		return empty, r.failed(os.ErrClosed)
	}
	from, oldest, err := r.oldest()
	if from != nil && len(r.buffers) > 1 {
		// A ring that was empty may have got an older record before this one was written: all such are there by now.
		from, oldest, err = r.oldest()
	}
	if err != nil || from == nil {
		return oldest.state, err
	}
	r.record = append(r.record[:0], oldest.record...)
	from.take(oldest.end)
	return ready, nil
}

// oldest looks at the next records of all rings. The buffer is nil if none is to be taken.
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
		if woken || !r.Empty() { // what comes after this look wakes
			return true
		}
		woken = true
		return false
	})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil // Next sees for itself whose it was
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

// Empty reports whether there is nothing behind what Next returned last.
func (r *Reader) Empty() bool {
	for _, b := range r.buffers {
		if b.bytes() > 0 {
			return false
		}
	}
	return true
}

// Flush has Next return every record that is there at the call, and then ErrFlushed, once for all calls until then. A record that
// is being written is waited for, up to one second.
func (r *Reader) Flush() error {
	r.flushes.Add(1)
	if err := r.poll.SetReadDeadline(time.Unix(1, 0)); err != nil {
		return r.failed(err)
	}
	return nil
}

// Flushing reports whether Next has a Flush to answer.
func (r *Reader) Flushing() bool { return r.flushes.Load() != r.flushed.Load() }

// Size is that of all rings, in bytes.
func (r *Reader) Size() int {
	size := 0
	for _, b := range r.buffers {
		size += len(b.data) / 2
	}
	return size
}

// Stats returns what the reader met so far.
func (r *Reader) Stats() Stats {
	return Stats{Pauses: r.stats.pauses.Load(), Unfinished: r.stats.unfinished.Load()}
}

// Close ends a Next that waits, and frees what the Reader has.
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
