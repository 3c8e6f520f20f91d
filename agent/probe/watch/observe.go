package watch

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/breakpoint"
)

// A Request says what to watch, and for how long.
type Request struct {
	proc.Identity
	Addresses []uint64 // 1 to MaxAddresses
	// Threads are who to watch, the most important first: from breakpoint.MaxThreads on they
	// are left out. nil means those that ran lately, which takes some 10 us a thread twice a
	// second.
	Threads  []int
	Duration time.Duration // wall time, up to MaxDuration
	Hits     int           // hits of all addresses and threads together: the watch ends with the last one
	// Overrun is how many hits each breakpoint has at most: a busy agent ends watches late. 0 means
	// Hits.
	Overrun int
	Deliver bool // the program's records also go to its event stream
	// Before is asked when it is this watch's turn, before the breakpoints are set: its error ends
	// the watch. It may be nil.
	Before func() error
}

func (r *Request) check() error {
	if len(r.Addresses) < 1 || len(r.Addresses) > MaxAddresses || r.Hits < 1 || r.Duration <= 0 ||
		r.Duration > MaxDuration {
		return fmt.Errorf("watch of %d addresses for %v and %d hits: %w", len(r.Addresses), r.Duration, r.Hits,
			unix.EINVAL)
	}
	return nil
}

// An Observation says what became of a watch. The hits are in the Kernel.
type Observation struct {
	Number uint64
	Capped bool          // the limit of hits was reached
	Late   int           // hits after that, until the breakpoints were gone
	Length time.Duration // wall time from the first breakpoint's arming to the first's disarming
	Armed  time.Duration // for how long a thread had its breakpoints, on average: one gets and loses them after another
	// Ran is for how long the threads were on a CPU while they were armed, all together: all hits
	// are part of it, at HitTime each.
	Ran time.Duration
	// Cost is of the process's CPU time: all hits, and to set and to remove the breakpoints. Failed
	// watches have it, as they also cost time.
	Cost time.Duration
	// Threads were watched. Others were left out because their debug registers are in use (Busy),
	// because they ended (Gone), because there were too many (Left), or because they began later
	// (not counted).
	Threads, Busy, Gone, Left int
}

// Watch observes hits until the watch's end. k has the program's own questions, and gets its
// answers. If the process has another watch it waits for its turn. breakpoint.ErrBusy and
// breakpoint.ErrThreadsGone are of this moment: another watch may succeed. When ctx is done the
// watch is closed and void.
func (o *Observer) Watch(ctx context.Context, r Request, k Kernel) (seen Observation, err error) {
	if err := r.check(); err != nil {
		return seen, err
	}
	leave, err := o.watcher.enter(ctx, r.PID)
	if err != nil {
		return seen, err
	}
	defer leave()
	if r.Before != nil {
		if err := r.Before(); err != nil {
			return seen, err
		}
	}
	if r.Threads == nil {
		if r.Threads, err = o.watcher.threads.running(r.Identity); err != nil {
			return seen, err
		}
	}
	if n := len(r.Threads) - breakpoint.MaxThreads; n > 0 {
		r.Threads, seen.Left = r.Threads[:breakpoint.MaxThreads], n
	}
	return seen, o.watch(ctx, &seen, &r, k)
}

// watch opens a watch and closes it, whatever happens in between.
func (o *Observer) watch(ctx context.Context, seen *Observation, r *Request, k Kernel) (err error) {
	number, end := o.begin()
	defer o.end(number)
	h := k.Head()
	h.Number, h.StartTicks, h.Limit = number, r.Ticks(), uint32(r.Hits)
	copy(h.Addresses[:], r.Addresses)
	if r.Deliver {
		h.Deliver = 1
	}
	key := uint32(r.PID)
	if err := o.program.Watches.Update(key, k, ebpf.UpdateNoExist); err != nil {
		return fmt.Errorf("open watch: %w", err)
	}
	defer func() {
		err = errors.Join(err, o.program.Watches.Delete(key))
	}()
	seen.Number = number
	failed := o.armed(ctx, seen, r, end)
	// The breakpoints are gone from all CPUs: nobody writes there any more.
	if err := o.program.Watches.Lookup(key, k); err != nil {
		return errors.Join(failed, fmt.Errorf("read watch: %w", err))
	}
	seen.Capped = h.Claimed >= h.Limit
	seen.Late = int(max(h.Claimed, h.Limit) - h.Limit)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.runs += h.Runs
	o.ns += h.Ns
	o.arming += seen.Cost
	seen.Cost += time.Duration(h.Runs)*o.trap + time.Duration(h.Ns)
	return failed
}

// armed has breakpoints stand for the length of the watch.
func (o *Observer) armed(ctx context.Context, seen *Observation, r *Request, end <-chan struct{}) (err error) {
	runtime.LockOSThread() // The CPU clock is that of the thread.
	defer runtime.UnlockOSThread()
	overrun := r.Overrun
	if overrun == 0 {
		overrun = r.Hits
	}
	b, err := breakpoint.NewSet(o.program.Breakpoint, r.Addresses, r.Threads, overrun)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	seen.Threads, seen.Busy, seen.Gone = b.Threads(), b.Busy, b.Gone

	timer := time.NewTimer(r.Duration)
	defer timer.Stop()
	cpu, begin := proc.OwnThreadTime(), time.Now()
	if err := b.Arm(); err != nil {
		return err
	}
	seen.Cost += proc.OwnThreadTime() - cpu
	arming := time.Since(begin)
	select {
	case <-timer.C:
	case <-end:
	case <-ctx.Done():
	}
	seen.Length = time.Since(begin)
	cpu = proc.OwnThreadTime()
	err = b.Disarm()
	seen.Cost += proc.OwnThreadTime() - cpu
	seen.Armed = seen.Length - arming/2 + (time.Since(begin)-seen.Length)/2
	err = errors.Join(ctx.Err(), err)
	if err != nil {
		return err
	}
	seen.Ran, err = b.Ran()
	return err
}
