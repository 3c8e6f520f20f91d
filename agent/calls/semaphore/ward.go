package semaphore

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// burstLimit is how long a semaphore stays set at most: PHP_BURST_NS. A guest that sleeps in the middle of a burst, or
// never comes by the probe, is disarmed after it.
const burstLimit = time.Second

// A ward is a process under guard.
type ward struct {
	ticks uint64 // start, 10 ms of CLOCK_BOOTTIME

	armed atomic.Int64 // when its burst began, Unix ns; 0 if there is none

	mu   sync.Mutex // held while its memory is read or written, which it can delay for ever
	cell cell
	held bool // set until it is released
	gone bool // nothing may be written any more
}

// arm sets the semaphore for a burst.
func (w *ward) arm() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gone || w.held {
		return nil
	}
	w.armed.Store(time.Now().UnixNano())
	return w.cell.arm()
}

// clear ends a burst.
func (w *ward) clear() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gone || w.held {
		return nil
	}
	w.armed.Store(0)
	return w.cell.clear()
}

// late reports whether its burst takes too long. It never waits.
func (w *ward) late() bool {
	at := w.armed.Load()
	return at != 0 && time.Since(time.Unix(0, at)) > burstLimit
}

// hold sets the semaphore until release.
func (w *ward) hold() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gone {
		return errNoWard
	}
	w.held = true
	w.armed.Store(0)
	return w.cell.arm()
}

// release clears what hold set.
func (w *ward) release() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held = false
	w.armed.Store(0)
	return w.cell.clear()
}

// leave clears the semaphore for the last time and lets go of the process.
func (w *ward) leave() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gone {
		return nil
	}
	w.gone = true
	return errors.Join(w.cell.clear(), w.cell.mem.Close())
}

// All processes under guard.
type wards struct {
	mu    sync.Mutex
	byPID map[uint32]*ward
}

// errNoWard: an order about a process that is not under guard.
var errNoWard = errors.New("process is not under guard")

// find returns the process of that pid and start, or nil.
func (s *wards) find(pid uint32, ticks uint64) *ward {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.byPID[pid]; w != nil && w.ticks == ticks {
		return w
	}
	return nil
}

// put adds a process, and returns the one that had its pid.
func (s *wards) put(pid uint32, w *ward) (before *ward) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before = s.byPID[pid]
	s.byPID[pid] = w
	return before
}

// take removes a process, if it is still that one.
func (s *wards) take(pid uint32, w *ward) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byPID[pid] == w {
		delete(s.byPID, pid)
	}
}

// all is a copy.
func (s *wards) all() map[uint32]*ward {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[uint32]*ward, len(s.byPID))
	for pid, w := range s.byPID {
		all[pid] = w
	}
	return all
}
