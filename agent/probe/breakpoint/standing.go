package breakpoint

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// maxStanding bounds the addresses of Standing breakpoints: all debug registers that a thread of
// x86-64 has.
const maxStanding = 4

// Standing breakpoints run a program whenever one of some threads is about to execute one of some
// addresses, for as long as their owner refills them: each stops after MaxHits hits that nobody
// made up for, also if the agent hangs. Otherwise they are as those of a Set.
type Standing struct {
	Busy int // threads that were left out since they have too few free debug registers

	prog      *ebpf.Program
	addresses []uint64
	threads   map[int]*standing
}

// standing are the breakpoints of a thread.
type standing struct {
	group []int    // descriptors, the leader first
	hits  []uint64 // hits of each that were made up for
}

// NewStanding returns breakpoints at up to four addresses, in no thread yet.
func NewStanding(prog *ebpf.Program, addresses []uint64) (*Standing, error) {
	if len(addresses) < 1 || len(addresses) > maxStanding {
		return nil, fmt.Errorf("%d addresses: %w", len(addresses), unix.EINVAL)
	}
	if err := catchLostTraps(); err != nil {
		return nil, err
	}
	return &Standing{prog: prog, addresses: addresses, threads: map[int]*standing{}}, nil
}

// Threads returns how many threads have the breakpoints.
func (s *Standing) Threads() int { return len(s.threads) - s.Busy }

// Has reports whether a thread has the breakpoints, or was left out.
func (s *Standing) Has(tid int) bool {
	_, has := s.threads[tid]
	return has
}

// Add sets the breakpoints in a thread. One that has ended, or has no free debug registers, is left
// out.
func (s *Standing) Add(tid int) error {
	group, err := openGroup(s.prog, s.addresses, tid, MaxHits)
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EBUSY):
		s.Busy++
		s.threads[tid] = &standing{}
		return nil
	case errors.Is(err, unix.ESRCH):
		return nil
	case err != nil:
		return err
	}
	t := &standing{group: group, hits: make([]uint64, len(group))}
	if err := unix.IoctlSetInt(group[0], unix.PERF_EVENT_IOC_REFRESH, MaxHits); err != nil {
		return errors.Join(fmt.Errorf("arm breakpoints: %w", err), closeAll(group))
	}
	s.threads[tid] = t
	return nil
}

// Keep removes the breakpoints of all threads but those, which are the ones that exist.
func (s *Standing) Keep(tids map[int]bool) (gone []int, err error) {
	var errs []error
	for tid, t := range s.threads {
		if tids[tid] {
			continue
		}
		if t.group == nil {
			s.Busy--
		}
		errs = append(errs, closeAll(t.group))
		delete(s.threads, tid)
		gone = append(gone, tid)
	}
	return gone, errors.Join(errs...)
}

// Refill makes up for the hits since the last time.
func (s *Standing) Refill() error {
	for _, t := range s.threads {
		for i, fd := range t.group {
			var answer [3 * 8]byte // count, time enabled, time running
			if _, err := unix.Read(fd, answer[:]); err != nil {
				return fmt.Errorf("read breakpoint: %w", err)
			}
			hits := binary.NativeEndian.Uint64(answer[:])
			if more := hits - t.hits[i]; more > 0 && more < MaxHits {
				if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_REFRESH, int(more)); err != nil {
					return fmt.Errorf("refill breakpoint: %w", err)
				}
			}
			t.hits[i] = hits
		}
	}
	return nil
}

// Close removes all breakpoints.
func (s *Standing) Close() error {
	_, err := s.Keep(nil)
	return err
}
