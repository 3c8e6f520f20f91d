package proc

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"
)

// PoolOptions are the bounds of a Pool. Zero fields take the defaults named below.
type PoolOptions struct {
	Workers    int           // calls that run at once: 4
	MaxStuck   int           // abandoned calls, each holding a thread, at which no more are begun: 32
	Deadline   time.Duration // of one call, not counted what it waits for a CPU: 2 s
	Backoff    time.Duration // first quarantine of a target that hung, doubled each time: 10 s
	MaxBackoff time.Duration // longest quarantine: 10 min
}

// A Pool runs calls that a target may delay for ever, each under a deadline. A call that passes it is abandoned, as
// nothing can end it: its worker is replaced, and its target is left alone for a while. So one hung target costs the
// others one deadline at most, and all hung targets together hold at most MaxStuck + Workers threads: the pool refuses
// all work beyond that.
//
// Deadlines count what a target took, not what the scheduler did: see callClock.
//
// Waiting for a free worker is bounded too: a worker is free again after Deadline at the latest, and after 60 times that if the
// agent itself gets no CPU. Still, the goroutine
// that drains the ring must not wait at all and never calls a pool.
type Pool struct {
	opt     PoolOptions
	look    func(tid int) moment // at the thread of a call
	workers chan struct{}        // holds one token for each call that runs and is not abandoned

	mu      sync.Mutex
	targets map[int]*target // those that hang, or hung lately; by pid
	stats   PoolStats
}

// A target is one that did not answer in time.
type target struct {
	stuck   int           // its abandoned calls that have not returned yet
	backoff time.Duration // length of the last quarantine
	until   time.Time     // end of it
}

// refuses reports whether the target is to be left alone. While a call of it is outstanding, that is always so: one
// target holds no more threads than the calls that ran when it first hung.
func (t *target) refuses(now time.Time) bool { return t.stuck > 0 || now.Before(t.until) }

// PoolStats says what a pool did. Counters never go back.
type PoolStats struct {
	Calls       uint64 // counter: calls that returned in time, whatever they returned
	Abandoned   uint64 // counter: calls that did not
	Canceled    uint64 // counter: calls that were given up as their context ended
	Refused     uint64 // counter: calls not begun, as their target is quarantined
	Exhausted   uint64 // counter: calls not begun, as MaxStuck was reached
	Stuck       int    // gauge: abandoned or canceled calls that have not returned yet
	Quarantined int    // gauge: targets that are left alone
}

// NewPool returns a pool. It holds no resources while no call runs, so there is nothing to close.
func NewPool(opt PoolOptions) *Pool {
	opt.Workers = orDefault(opt.Workers, 4)
	opt.MaxStuck = orDefault(opt.MaxStuck, 32)
	opt.Deadline = orDefault(opt.Deadline, 2*time.Second)
	opt.Backoff = orDefault(opt.Backoff, 10*time.Second)
	opt.MaxBackoff = orDefault(opt.MaxBackoff, 10*time.Minute)
	return &Pool{
		opt:     opt,
		look:    lookAtThread,
		workers: make(chan struct{}, opt.Workers),
		targets: make(map[int]*target),
	}
}

func orDefault[T int | time.Duration](v, def T) T {
	if v <= 0 {
		return def
	}
	return v
}

// Do runs fn, which reads the process pid, and returns its error. It returns ErrTimeout when fn passes the deadline
// and the context's error when that ends first; fn then goes on, so it may only write to what it owns. It returns
// ErrQuarantined or ErrExhausted without having run fn.
func (p *Pool) Do(ctx context.Context, pid int, fn func() error) error {
	return p.do(ctx, pid, func(c *call) error {
		runtime.LockOSThread() // for the clock
		defer runtime.UnlockOSThread()
		c.here()
		return fn()
	})
}

// do is Do for a function that calls here before each system call that the target can delay. To keep it on one thread instead
// takes 5 us.
func (p *Pool) do(ctx context.Context, pid int, fn func(*call) error) error {
	if err := p.admit(pid); err != nil {
		return err
	}
	select {
	case p.workers <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-p.workers }()
	// The target may have hung another call while this one waited.
	if err := p.admit(pid); err != nil {
		return err
	}

	c := &call{pool: p, pid: pid, done: make(chan error, 1)}
	clock := callClock{look: p.look}
	clock.begin(time.Now())
	go func() { c.finish(Catch(func() error { return fn(c) })) }()
	pause := p.opt.Deadline / checksPerDeadline
	check := time.NewTimer(pause)
	defer check.Stop()
	for {
		select {
		case err := <-c.done:
			return err
		case <-ctx.Done():
			return c.abandon(ctx.Err())
		case <-check.C:
			if clock.check(int(c.thread.Load()), time.Now()) >= pause*checksPerDeadline {
				return c.abandon(ErrTimeout)
			}
			check.Reset(pause)
		}
	}
}

// Forget ends the quarantine of a pid, for when its process has ended.
func (p *Pool) Forget(pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.targets[pid]; t != nil && t.stuck == 0 {
		delete(p.targets, pid)
	}
}

// Stats returns what the pool did so far.
func (p *Pool) Stats() PoolStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	s := p.stats
	for _, t := range p.targets {
		if t.refuses(now) {
			s.Quarantined++
		}
	}
	return s
}

// admit refuses a target that hangs, and everybody when too many do.
func (p *Pool) admit(pid int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.targets[pid]; t != nil && t.refuses(time.Now()) {
		p.stats.Refused++
		return fmt.Errorf("process %d: %w", pid, ErrQuarantined)
	}
	if p.stats.Stuck >= p.opt.MaxStuck {
		p.stats.Exhausted++
		return fmt.Errorf("process %d: %d calls outstanding: %w", pid, p.stats.Stuck, ErrExhausted)
	}
	return nil
}

// punish quarantines a target that hung a call, for twice as long as the last time. The caller holds the lock.
func (p *Pool) punish(pid int, now time.Time) *target {
	// Those that behaved for as long as their quarantine took start anew. This bounds the table as well: hung calls
	// enter it at a rate of Workers per Deadline at most.
	for pid, t := range p.targets {
		if t.stuck == 0 && now.After(t.until.Add(t.backoff)) {
			delete(p.targets, pid)
		}
	}
	t := p.targets[pid]
	if t == nil {
		t = &target{}
		p.targets[pid] = t
	}
	t.backoff = min(max(2*t.backoff, p.opt.Backoff), p.opt.MaxBackoff)
	t.until = now.Add(t.backoff)
	return t
}
