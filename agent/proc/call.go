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
	kind      kind
	terms     terms
	began     time.Time
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
	p, now := c.pool, time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	c.finished = true
	c.done <- err
	if !c.abandoned {
		p.stats.Calls++
		t := p.target(c.pid, now)
		t.answered[c.kind] = true
		if t.owner.unknown() {
			t.owner = c.terms.owner
		}
		return
	}
	p.stats.Stuck--
	p.stuck.add(c.terms.owner, c.kind, -1)
	if c.hung == nil {
		return
	}
	c.hung.stuck--
	switch {
	case c.terms.deadline >= p.opt.Deadline: // it was punished when it was abandoned
	case now.Sub(c.began) > p.opt.Deadline:
		p.punish(c.hung, now)
	default:
		c.hung.slow = true
	}
}

// abandon gives the call up for that reason, unless it finished just now.
func (c *call) abandon(reason error) error {
	p := c.pool
	// Processes become another user's. One that is gone leaves its hanging calls to whose it was.
	owner := p.opt.Owner(c.pid)
	if owner.unknown() {
		owner = c.terms.owner
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.finished {
		return <-c.done
	}
	c.abandoned = true
	p.stats.Stuck++
	c.terms.owner = owner
	p.stuck.add(owner, c.kind, 1)
	// A target is not to blame for a caller that lost interest.
	if !errors.Is(reason, ErrTimeout) {
		p.stats.Canceled++
		return reason
	}
	p.stats.Abandoned++
	now := time.Now()
	c.hung = p.target(c.pid, now)
	c.hung.stuck++
	if c.terms.deadline >= p.opt.Deadline {
		p.punish(c.hung, now)
	}
	return fmt.Errorf("process %d: %w (%v)", c.pid, reason, c.terms.deadline)
}
