package proc

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Call is Pool.Do for a call with a result. What an abandoned call returns later is dropped; an *os.File among it is
// closed by the garbage collector.
func Call[T any](ctx context.Context, p *Pool, pid int, fn func() (T, error)) (T, error) {
	// An abandoned fn goes on and writes here, so this is read only after fn returned.
	result := new(T)
	err := p.Do(ctx, pid, func() (err error) {
		*result, err = fn()
		return err
	})
	if err != nil {
		var none T
		return none, err
	}
	return *result, nil
}

// A call is one fn of Do. Either it finishes or it is abandoned, whichever takes the pool's lock first.
type call struct {
	pool      *Pool
	pid       int
	thread    atomic.Int32 // that runs it, as far as it said so
	done      chan error   // buffered, so that finish never blocks
	finished  bool
	abandoned bool
	hung      *target // set when abandoned for being late
}

// here notes on which thread the call is, for its clock.
func (c *call) here() { c.thread.Store(int32(unix.Gettid())) }

// finish runs on the call's own goroutine.
func (c *call) finish(err error) {
	p := c.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	c.finished = true
	c.done <- err
	if !c.abandoned {
		p.stats.Calls++
		return
	}
	p.stats.Stuck--
	if c.hung != nil {
		c.hung.stuck--
	}
}

// abandon gives the call up for that reason, unless it finished just now.
func (c *call) abandon(reason error) error {
	p := c.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.finished {
		return <-c.done
	}
	c.abandoned = true
	p.stats.Stuck++
	// A target is not to blame for a caller that lost interest.
	if !errors.Is(reason, ErrTimeout) {
		p.stats.Canceled++
		return reason
	}
	p.stats.Abandoned++
	c.hung = p.punish(c.pid, time.Now())
	c.hung.stuck++
	return fmt.Errorf("process %d: %w (%v)", c.pid, reason, p.opt.Deadline)
}
