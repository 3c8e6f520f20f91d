package proc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Call is Pool.Do for a call with a result. What an abandoned call returns later is dropped; an
// *os.File among it is closed by the garbage collector.
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

// A call is one fn of Do. Either it finishes or it is abandoned, whichever takes the pool's lock
// first.
type call struct {
	pool      *Pool
	pid       int
	kind      kind
	terms     terms
	began     time.Time
	thread    atomic.Int32 // the thread that runs it, as far as it said so
	done      chan error   // buffered, so that finish never blocks; nil for a call of a Direct
	finished  bool
	abandoned bool
	hung      *target // set when abandoned for being late

	// A Direct uses these, as it uses a call again for its next read.
	number  uint64    // number of the read
	watched uint64    // number of the read that clock is of
	clock   callClock // belongs to Pool.watch
}

// here notes on which thread the call is, for its clock.
func (c *call) here() { c.thread.Store(int32(unix.Gettid())) }

// finish runs on the goroutine that makes the call.
func (c *call) finish(err error) {
	p, now := c.pool, time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	c.finished = true
	if c.done != nil {
		c.done <- err
	}
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
	owner := c.ownerNow()
	p := c.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.finished {
		return <-c.done
	}
	return c.giveUp(owner, reason)
}

// abandonRead gives up that read of a Direct for being late, unless it has ended. It reports
// whether it did.
func (c *call) abandonRead(number uint64) bool {
	owner := c.ownerNow()
	p := c.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.finished || c.abandoned || c.number != number {
		return false
	}
	c.giveUp(owner, ErrTimeout)
	return true
}

// ownerNow is whose the call is: processes become another user's. One that is gone leaves its
// hanging calls to whose it was, which is unknown here.
func (c *call) ownerNow() Owner { return c.pool.opt.Owner(c.pid) }

// giveUp notes that the call is given up; the caller holds the pool's lock.
func (c *call) giveUp(owner Owner, reason error) error {
	p := c.pool
	if owner.unknown() {
		owner = c.terms.owner
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

// A callClock measures how long the target of a call lets it wait. Time in which the agent's thread
// had no CPU is not the target's: on a busy machine, or with a small CPU quota, a healthy target
// would be taken for one that hangs. So the clock looks at the thread now and then, and counts each
// interval by what the thread does at its end.
//
// An interval counts for no longer than it was meant to last: where the look comes late, the agent
// had no CPU for it, and the thread may have had none either.
type callClock struct {
	look  func(tid int) moment
	pause time.Duration // time between two looks
	tid   int           // the thread that was looked at last
	last  moment
	took  time.Duration
	since time.Time
}

// A moment is what the kernel says of a thread at one time.
type moment struct {
	state   threadState
	cpu     time.Duration // CPU time that the thread used
	waited  time.Duration // time that it was ready to run and had no CPU, up to when it last got one
	starved time.Duration // the same, of all threads of the agent together
}

type threadState uint8

const (
	stateUnknown threadState = iota
	stateRunning             // running, or ready to run
	stateParked              // the Go runtime has it wait: for a lock, for its turn or for work
	stateBlocked             // blocked in a system call: for the target
)

const (
	// checksPerDeadline is how often a call is looked at. Most calls end before the first time.
	checksPerDeadline = 8
	// cpuWeight is how much CPU time counts as much as blocked time. What is computed from a
	// target's data is bounded by its size, so this is only for what was overlooked.
	cpuWeight = 10
	// leastWeight is how much of any interval counts, as its inverse. So every call ends: after 60
	// deadlines at the latest.
	leastWeight = 60
	// noise is how much waiting for CPUs is usual, as an inverse share of the interval: it is not
	// deducted.
	noise = 4
)

// begin starts the clock.
func (c *callClock) begin(now time.Time) { c.since = now }

// check counts the time since the last check, and returns how long the target took so far.
func (c *callClock) check(tid int, now time.Time) time.Duration {
	at := c.look(tid)
	if tid != c.tid { // what two threads did cannot be compared
		c.last = moment{}
	}
	c.took += min(counted(c.last, at, now.Sub(c.since)), c.pause)
	c.tid, c.last, c.since = tid, at, now
	return c.took
}

// counted is how much of an interval is to be counted. Of the first one its begin is unknown.
func counted(from, to moment, interval time.Duration) time.Duration {
	if from.state == stateUnknown {
		from = to
	}
	counts := interval
	switch to.state {
	case stateRunning:
		counts = (to.cpu - from.cpu) / cpuWeight
	case stateBlocked:
		counts -= deducted(to.waited-from.waited, interval)
	case stateParked:
		counts -= deducted(to.starved-from.starved, interval)
	}
	return min(max(counts, interval/leastWeight), interval)
}

func deducted(waited, interval time.Duration) time.Duration {
	if waited < interval/noise {
		return 0
	}
	return waited
}

// lookAtThread asks the kernel about a thread of the agent. Where it does not say, the state is
// unknown. Zero is the thread of a call that has not got as far as its target.
func lookAtThread(tid int) (m moment) {
	if tid == 0 {
		return moment{state: stateRunning}
	}
	const tasks = "/proc/self/task"
	dir := filepath.Join(tasks, strconv.Itoa(tid))
	call, err := os.ReadFile(filepath.Join(dir, "syscall"))
	if err != nil {
		return moment{}
	}
	if m.cpu, m.waited, err = readSchedule(dir); err != nil {
		return moment{}
	}
	m.state = parseSyscall(call)
	if m.state == stateParked {
		threads, err := os.ReadDir(tasks)
		if err != nil {
			return moment{}
		}
		for _, thread := range threads {
			_, waited, _ := readSchedule(filepath.Join(tasks, thread.Name())) // one that has ended waits no more
			m.starved += waited
		}
	}
	return m
}

// parseSyscall reads a thread's state from /proc/PID/task/TID/syscall: "running", or the number of
// the system call that it is in and its arguments, or -1 if it waits outside of any: for its own
// memory. No call waits for a target in one of those that park a thread; a call may have left the
// thread since it named it.
func parseSyscall(text []byte) threadState {
	number, _, _ := bytes.Cut(bytes.TrimSpace(text), []byte(" "))
	switch string(number) {
	case "running":
		return stateRunning
	case strconv.Itoa(unix.SYS_FUTEX), strconv.Itoa(unix.SYS_EPOLL_PWAIT), strconv.Itoa(unix.SYS_NANOSLEEP), "-1":
		return stateParked
	}
	return stateBlocked
}

// readSchedule reads for how long a thread had a CPU, and for how long it waited for one. See
// proc_pid_schedstat in the kernel's fs/proc/base.c: two numbers of nanoseconds, and how often it
// got a CPU.
func readSchedule(dir string) (cpu, waited time.Duration, err error) {
	text, err := os.ReadFile(filepath.Join(dir, "schedstat"))
	if err != nil {
		return 0, 0, err
	}
	fields := bytes.Fields(text)
	if len(fields) < 2 {
		return 0, 0, ErrMalformed
	}
	ran, err := strconv.ParseInt(string(fields[0]), 10, 64)
	if err != nil {
		return 0, 0, ErrMalformed
	}
	delay, err := strconv.ParseInt(string(fields[1]), 10, 64)
	if err != nil {
		return 0, 0, ErrMalformed
	}
	return time.Duration(ran), time.Duration(delay), nil
}
