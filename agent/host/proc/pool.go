package proc

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"
)

// PoolOptions are the bounds of a Pool. Zero fields take the defaults named below.
type PoolOptions struct {
	Workers  int // calls that run at once, of processes that answered before; and as many of others: 4
	MaxStuck int // abandoned calls, each holding a thread, at which no more are begun: 32
	// MaxOwnerStuck is how many abandoned calls to processes of one Owner there are at which no
	// more are begun: 4; of one user: 16.
	MaxOwnerStuck int
	Deadline      time.Duration   // limit of one call, not counted what it waits for a CPU: 2 s
	FirstDeadline time.Duration   // limit of the first call of a kind to a process: 100 ms
	Backoff       time.Duration   // first quarantine of a target that hung, doubled each time: 10 s
	MaxBackoff    time.Duration   // longest quarantine: 10 min
	Owner         func(int) Owner // tells whose a process is; nil asks /proc
}

// A Pool runs calls that a target may delay for ever, each under a deadline. A call that passes it
// is abandoned, as nothing can end it: its worker is replaced, and its target is left alone for a
// while.
//
// Many processes may hang on purpose. So a process is trusted step by step:
//
//   - The first call of a kind has FirstDeadline only. A process that answers later than that, within Deadline, is slow
//     but honest: from then on it has Deadline.
//   - While a call of an Owner's process is stuck, first calls are all that its other processes get as well, and at
//     MaxOwnerStuck none. So an attacker who starts processes uses up his own share.
//   - Processes that answered calls of that kind before, and reads of pages that are there, have workers of their own,
//     and are refused only at twice MaxStuck and three times MaxOwnerStuck.
//
// Deadlines count what a target took, not what the scheduler did: see callClock.
//
// Waiting for a free worker is bounded too: a worker is free again after Deadline at the latest,
// and after 60 times that if the agent itself gets no CPU. Still, the goroutine that drains the
// ring must not wait at all and never calls a pool.
type Pool struct {
	opt     PoolOptions
	look    func(tid int) moment // looks at the thread of a call
	workers [2]chan struct{}     // by trust: one token for each call that runs and is not abandoned

	mu       sync.Mutex
	targets  map[int]*target // those that were called, by pid
	stuck    stuckCalls
	stats    PoolStats
	direct   map[*Direct]*call // under way
	watching bool              // a timer looks at these
}

// A kind of calls. Who hangs one kind can answer another, and be trusted there.
type kind uint8

const (
	general kind = iota // calls for files, on any file system, and for /proc
	present             // reads of pages that were there a moment ago
	absent              // reads of pages that were not: somebody has to supply them
	kinds
)

// A target is a process that was called.
type target struct {
	answered [kinds]bool
	owner    Owner         // when it was called first
	slow     bool          // it answered after FirstDeadline, but within Deadline
	stuck    int           // its abandoned calls that have not returned yet
	backoff  time.Duration // length of the last quarantine
	until    time.Time     // end of it
}

// refuses reports whether the target is to be left alone. While a call of it is outstanding, that
// is always so: one target holds no more threads than the calls that ran when it first hung.
func (t *target) refuses(now time.Time) bool { return t.stuck > 0 || now.Before(t.until) }

// blameless reports whether nothing is to be remembered against the target, nor for much longer.
func (t *target) blameless(now time.Time) bool {
	return t.stuck == 0 && now.After(t.until.Add(t.backoff))
}

// PoolStats says what a pool did. Counters never go back.
type PoolStats struct {
	Calls       uint64 // counter: calls that returned in time, whatever they returned
	Abandoned   uint64 // counter: calls that did not
	Canceled    uint64 // counter: calls that were given up as their context ended
	Refused     uint64 // counter: calls not begun, as their target is quarantined
	Exhausted   uint64 // counter: calls not begun, as MaxStuck was reached
	Crowded     uint64 // counter: calls not begun, as MaxOwnerStuck was reached
	Stuck       int    // gauge: abandoned or canceled calls that have not returned yet
	Quarantined int    // gauge: targets that are left alone
}

// NewPool returns a pool. It holds no resources while no call runs, so there is nothing to close.
func NewPool(opt PoolOptions) *Pool {
	opt.Workers = orDefault(opt.Workers, 4)
	opt.MaxStuck = orDefault(opt.MaxStuck, 32)
	opt.MaxOwnerStuck = orDefault(opt.MaxOwnerStuck, 4)
	opt.Deadline = orDefault(opt.Deadline, 2*time.Second)
	opt.FirstDeadline = min(orDefault(opt.FirstDeadline, 100*time.Millisecond), opt.Deadline)
	opt.Backoff = orDefault(opt.Backoff, 10*time.Second)
	opt.MaxBackoff = orDefault(opt.MaxBackoff, 10*time.Minute)
	if opt.Owner == nil {
		opt.Owner = DefaultRoot.Owner
	}
	return &Pool{
		opt:     opt,
		look:    lookAtThread,
		workers: [2]chan struct{}{make(chan struct{}, opt.Workers), make(chan struct{}, opt.Workers)},
		targets: make(map[int]*target),
		stuck:   newStuckCalls(),
		direct:  make(map[*Direct]*call),
	}
}

func orDefault[T int | time.Duration](v, def T) T {
	if v <= 0 {
		return def
	}
	return v
}

// Do runs fn, which reads the process pid, and returns its error. It returns ErrTimeout when fn
// passes the deadline and the context's error when that ends first; fn then goes on, so it may only
// write to what it owns. It returns ErrQuarantined, ErrCrowded or ErrExhausted without having run
// fn.
func (p *Pool) Do(ctx context.Context, pid int, fn func() error) error {
	return p.do(ctx, pid, general, func(c *call) error {
		runtime.LockOSThread() // The clock is that of the thread.
		defer runtime.UnlockOSThread()
		c.here()
		return fn()
	})
}

// do is Do for a function that calls here before each system call that the target can delay. To
// keep it on one thread instead takes 5 us.
func (p *Pool) do(ctx context.Context, pid int, k kind, fn func(*call) error) error {
	terms, err := p.admit(pid, k)
	if err != nil {
		return err
	}
	workers := p.workers[terms.trust]
	select {
	case workers <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-workers }()
	// The target, or others of its owner, may have hung a call while this one waited.
	if terms, err = p.admit(pid, k); err != nil {
		return err
	}

	if terms.owner.unknown() { // it may be gone when the call hangs
		terms.owner = p.opt.Owner(pid)
	}
	c := &call{pool: p, pid: pid, kind: k, terms: terms, began: time.Now(), done: make(chan error, 1)}
	pause := terms.deadline / checksPerDeadline
	clock := callClock{look: p.look, pause: pause}
	clock.begin(time.Now())
	go func() { c.finish(Catch(func() error { return fn(c) })) }()
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

// terms are on what a call is run.
type terms struct {
	trust    trust
	deadline time.Duration
	owner    Owner
}

type trust uint8

const (
	unproven trust = iota
	proven
)

// admit refuses a target that hangs, and those whose owner, or everybody, has too many that do.
func (p *Pool) admit(pid int, k kind) (terms, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.targets[pid]
	if t != nil && t.refuses(time.Now()) {
		p.stats.Refused++
		return terms{}, fmt.Errorf("process %d: %w", pid, ErrQuarantined)
	}
	terms := terms{deadline: p.opt.FirstDeadline}
	if answered := t != nil && t.answered[k]; answered || k == present {
		terms.trust = proven
	}
	if t != nil {
		terms.owner = t.owner
	}
	alone := true // nobody of the owner is stuck
	if p.stats.Stuck > 0 {
		if owner := p.ownerOf(pid); !owner.unknown() {
			terms.owner = owner
		}
		if err := p.budget(pid, k, terms); err != nil {
			return terms, err
		}
		alone = p.stuck.count(terms.owner, k) == 0
	}
	if t != nil && (t.slow || t.answered[k] && alone) {
		terms.deadline = p.opt.Deadline
	}
	return terms, nil
}

// budget refuses a call when too many are stuck; p.mu is held.
func (p *Pool) budget(pid int, k kind, t terms) error {
	total, owner := p.opt.MaxStuck, p.opt.MaxOwnerStuck
	if t.trust == proven {
		total, owner = 2*total, 3*owner
	}
	const ownersPerUser = 4 // he may make cgroups of his own
	switch {
	case p.stuck.count(t.owner, k) >= owner, p.stuck.ofUser(t.owner.UID, k) >= ownersPerUser*owner:
		p.stats.Crowded++
		return fmt.Errorf("process %d: %d reads of processes of user %d in %s hang: %w",
			pid, p.stuck.ofUser(t.owner.UID, k), t.owner.UID, t.owner.Cgroup, ErrCrowded)
	case p.stats.Stuck >= total:
		p.stats.Exhausted++
		return fmt.Errorf("process %d: %d calls outstanding: %w", pid, p.stats.Stuck, ErrExhausted)
	}
	return nil
}

// ownerOf is opt.Owner without the lock, which the caller holds.
func (p *Pool) ownerOf(pid int) Owner {
	p.mu.Unlock()
	defer p.mu.Lock()
	return p.opt.Owner(pid)
}

// maxTargets bounds what is remembered of processes. Beyond it those to which nothing is to be said
// begin anew.
const maxTargets = 1 << 14

// target returns what is remembered of a process; p.mu is held.
func (p *Pool) target(pid int, now time.Time) *target {
	t := p.targets[pid]
	if t == nil {
		if len(p.targets) >= maxTargets {
			for pid, t := range p.targets {
				if t.blameless(now) {
					delete(p.targets, pid)
				}
			}
		}
		t = &target{}
		p.targets[pid] = t
	}
	return t
}

// punish quarantines a target that hung a call, for twice as long as the last time. The caller
// holds the lock.
func (p *Pool) punish(t *target, now time.Time) {
	// Those that behaved for as long as their quarantine took start anew.
	for pid, other := range p.targets {
		if other != t && other.answered == [kinds]bool{} && other.blameless(now) {
			delete(p.targets, pid)
		}
	}
	if now.After(t.until.Add(t.backoff)) {
		t.backoff = 0
	}
	t.backoff = min(max(2*t.backoff, p.opt.Backoff), p.opt.MaxBackoff)
	t.until = now.Add(t.backoff)
	t.answered, t.slow = [kinds]bool{}, false
}

// An Owner is who answers for a process: a user in a cgroup. A container that runs as root has
// another cgroup than the next.
type Owner struct {
	UID    uint32
	Cgroup string // path in the unified hierarchy, or all of /proc/PID/cgroup where there is none
}

// unknown reports whether o is of a process that is gone. All of these share a budget of their own,
// which is no user's.
func (o Owner) unknown() bool { return o == Owner{} || o == gone }

// gone is the owner of processes that have ended: the UID is the kernel's INVALID_UID
// (include/linux/uidgid.h).
var gone = Owner{UID: ^uint32(0)}

// Owner returns whose process pid is. A process that is gone has the UID 1<<32 - 1, which is no
// user's. No target can delay this.
func (r Root) Owner(pid int) Owner {
	s, err := r.Status(pid)
	if err != nil {
		return gone
	}
	o := Owner{UID: s.UID}
	if b, err := r.Cgroup(pid); err == nil {
		o.Cgroup = strings.TrimSpace(string(b))
		for line := range strings.Lines(o.Cgroup) {
			if path, ok := strings.CutPrefix(line, "0::"); ok {
				o.Cgroup = strings.TrimSpace(path)
			}
		}
	}
	return o
}

// stuckCalls counts abandoned calls that have not returned.
type stuckCalls struct {
	owners map[Owner]*[2]int
	users  map[uint32]*[2]int
}

func newStuckCalls() stuckCalls {
	return stuckCalls{map[Owner]*[2]int{}, map[uint32]*[2]int{}}
}

// class is what shares a budget: reads of memory, or all else. Who hangs one does not take the
// other from his neighbours.
func (k kind) class() int {
	if k == general {
		return 0
	}
	return 1
}

func (s stuckCalls) count(o Owner, k kind) int {
	if n := s.owners[o]; n != nil {
		return n[k.class()]
	}
	return 0
}

func (s stuckCalls) ofUser(uid uint32, k kind) int {
	if n := s.users[uid]; n != nil {
		return n[k.class()]
	}
	return 0
}

// add counts n more calls of an owner.
func (s stuckCalls) add(o Owner, k kind, n int) {
	count(s.owners, o, k, n)
	count(s.users, o.UID, k, n)
}

func count[K comparable](counts map[K]*[2]int, key K, k kind, n int) {
	c := counts[key]
	if c == nil {
		c = new([2]int)
		counts[key] = c
	}
	if c[k.class()] += n; *c == [2]int{} {
		delete(counts, key)
	}
}
