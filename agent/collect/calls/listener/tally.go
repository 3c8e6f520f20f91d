package listener

import (
	"context"
	"errors"
	"sync"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/watch"
)

// A Tally counts windows by their outcome. The zero value is ready for use, by several goroutines.
type Tally struct {
	mu      sync.Mutex
	watches calls.Watches
}

// Add counts a window that was opened with ctx and returned r and err. It reports whether err is a
// failure; other errors are temporary, and the next window may succeed.
func (t *Tally) Add(ctx context.Context, r *Result, err error) (failed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := &t.watches
	w.BusyThreads += uint64(r.Busy)
	switch {
	case err == nil && r.Capped:
		w.Full++
	case err == nil:
		w.Complete++
	case errors.Is(err, ErrJump), errors.Is(err, watch.ErrChanged):
		w.Void++
	case watch.Refused(err):
		w.Refused++
	case ctx.Err() != nil:
		w.Interrupted++
	default:
		w.Failed++
		return true
	}
	return false
}

// Watches returns the counts so far.
func (t *Tally) Watches() calls.Watches {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.watches
}
