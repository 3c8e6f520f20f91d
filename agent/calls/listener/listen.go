package listener

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/cilium/ebpf"

	"github.com/vmprof-agent/vmprof-agent/agent/attach"
	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// Listen listens at entries of one guest until the window's end, and returns what arrived. If another window of that
// guest is open it waits for its turn. ErrJump and ErrChanged, attach.ErrBreakpointsBusy and attach.ErrThreadsGone
// are of this moment: another window may succeed. When ctx is done the window is closed and void.
func (l *Listener) Listen(ctx context.Context, g Guest, entries []Entry, w Window) (Result, error) {
	if err := w.check(len(entries)); err != nil {
		return Result{}, err
	}
	leave, err := l.enter(ctx, g.PID)
	if err != nil {
		return Result{}, err
	}
	defer leave()
	before, err := snap(&g, entries)
	if err != nil {
		return Result{}, err
	}
	tids, left := g.Threads, 0
	if tids == nil {
		if tids, err = l.threads.running(g.Identity); err != nil {
			return Result{}, err
		}
	}
	if n := len(tids) - attach.MaxBreakpointThreads; n > 0 {
		tids, left = tids[:attach.MaxBreakpointThreads], n
	}
	r, err := l.window(ctx, g, entries, tids, w)
	r.Left = left
	if err != nil {
		return Result{}, err
	}
	if err := before.check(r.Hits); err != nil {
		return Result{}, err
	}
	return r, nil
}

// enter waits until the process has no window and there is room for one more.
func (l *Listener) enter(ctx context.Context, pid int) (leave func(), err error) {
	for {
		l.mu.Lock()
		other := l.taken[pid]
		if other == nil {
			break
		}
		l.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	mine := make(chan struct{})
	l.taken[pid] = mine
	l.mu.Unlock()
	free := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.taken, pid)
		close(mine)
	}
	select {
	case l.room <- struct{}{}:
		return func() { <-l.room; free() }, nil
	case <-ctx.Done():
		free()
		return nil, ctx.Err()
	}
}

// window opens a window and closes it, whatever happens in between.
func (l *Listener) window(ctx context.Context, g Guest, entries []Entry, tids []int, w Window) (r Result, err error) {
	number, end := l.begin()
	defer l.end(number)
	kernel := bpf.ListenerWindow{Number: number, StartTicks: g.Ticks(), Limit: uint32(w.MaxHits)}
	var addresses []uint64
	for i, e := range entries {
		kernel.Entries[i] = e.Address
		addresses = append(addresses, e.Address)
	}
	if w.Deliver {
		kernel.Deliver = 1
	}
	key := uint32(g.PID)
	if err := l.objects.ListenerWindows.Update(key, &kernel, ebpf.UpdateNoExist); err != nil {
		return r, fmt.Errorf("open window: %w", err)
	}
	defer func() {
		err = errors.Join(err, l.objects.ListenerWindows.Delete(key))
	}()
	r.Number = number
	if err := l.armed(ctx, &r, addresses, tids, w, end); err != nil {
		return r, err
	}
	// The breakpoints are gone from all CPUs: nobody writes there any more.
	if err := l.objects.ListenerWindows.Lookup(key, &kernel); err != nil {
		return r, fmt.Errorf("read window: %w", err)
	}
	r.read(&kernel)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs += kernel.Runs
	l.ns += kernel.Ns
	return r, nil
}

// armed has breakpoints stand for the length of the window.
func (l *Listener) armed(ctx context.Context, r *Result, addresses []uint64, tids []int, w Window, end <-chan struct{}) (err error) {
	runtime.LockOSThread() // for its CPU clock
	defer runtime.UnlockOSThread()
	b, err := attach.NewBreakpoints(l.objects.ListenerBreakpoint, addresses, tids, w.MaxHits)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	r.Threads, r.Busy, r.Gone = b.Threads(), b.Busy, b.Gone

	timer := time.NewTimer(w.Duration)
	defer timer.Stop()
	cpu, begin := proc.OwnThreadTime(), time.Now()
	if err := b.Arm(); err != nil {
		return err
	}
	cpu = proc.OwnThreadTime() - cpu
	select {
	case <-timer.C:
	case <-end:
	case <-ctx.Done():
		return ctx.Err()
	}
	r.Length = time.Since(begin)
	cpu -= proc.OwnThreadTime()
	err = b.Disarm()
	cpu += proc.OwnThreadTime()
	l.mu.Lock()
	l.arming += cpu
	l.mu.Unlock()
	if err != nil {
		return err
	}
	r.Ran, err = b.Ran()
	return err
}

// begin returns the number of a new window, and what is closed when it reaches its limit.
func (l *Listener) begin() (uint64, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.number++
	end := make(chan struct{})
	l.open[l.number] = end
	return l.number, end
}

// endOf is the number in a record of a window's end.
func endOf(raw []byte) (uint64, bool) {
	if len(raw) < 8 {
		return 0, false
	}
	return binary.NativeEndian.Uint64(raw), true
}
