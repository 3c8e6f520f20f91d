package monitors

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/attach"
	"github.com/vmprof-agent/vmprof-agent/agent/calls/listener"
	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/ring"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A Listener opens windows, one at a time. It is for one goroutine.
type Listener struct {
	objects *bpf.EnterObjects
	stream  *ring.Reader
	trap    time.Duration // of a hit, without the program
	number  uint64        // of the last window
	runs    uint64        // of the program
	ns      uint64        // in it
	seen    bpf.Observation
}

// Open loads the kernel side beside o, and sets breakpoints in the agent itself to see that they work and what they cost:
// some 10 ms. heaps are the kernel side's, of bpf.ProbeObjects. Close comes before o's.
func Open(o *bpf.Objects, heaps *ebpf.Map, root proc.Root) (*Listener, error) {
	calibration, err := listener.Open(o, root)
	if err != nil {
		return nil, err
	}
	l := &Listener{trap: calibration.HitTime()}
	if err := calibration.Close(); err != nil {
		return nil, err
	}
	if l.objects, err = o.LoadEnters(heaps); err != nil {
		return nil, err
	}
	if l.stream, err = ring.NewReader(l.objects.Events); err != nil {
		return nil, errors.Join(fmt.Errorf("open stream of monitor enters: %w", err), l.objects.Close())
	}
	return l, nil
}

// Close gives everything back.
func (l *Listener) Close() error { return errors.Join(l.stream.Close(), l.objects.Close()) }

// HitTime is what a hit takes of the guest's CPU time.
func (l *Listener) HitTime() time.Duration {
	if l.runs == 0 {
		return l.trap
	}
	return l.trap + time.Duration(l.ns/l.runs)
}

// Listen opens a window in a guest and returns what it heard. ErrChanged, attach.ErrBreakpointsBusy and
// attach.ErrThreadsGone are of this moment: another window may succeed. Cost is also that of a window that failed.
func (l *Listener) Listen(id proc.Identity, mem vmruntime.Memory, w Window) (r Result, err error) {
	if len(w.Sites) < 1 || len(w.Sites) > MaxSites || w.Duration <= 0 {
		return r, fmt.Errorf("window of %d sites for %v: %w", len(w.Sites), w.Duration, unix.EINVAL)
	}
	if err := unchanged(mem, w.Sites); err != nil {
		return r, err
	}
	l.number++
	kernel := bpf.EnterWindow{Number: l.number, StartTicks: id.Ticks(), Pid: uint32(id.PID), Limit: MaxHits}
	var addresses []uint64
	for i, s := range w.Sites {
		kernel.Sites[i] = s.kernel
		addresses = append(addresses, s.Address)
	}
	if err := l.objects.EnterWindows.Put(uint32(0), &kernel); err != nil {
		return r, fmt.Errorf("open window: %w", err)
	}
	armed, heard := l.armed(&r, addresses, w)
	// The breakpoints are gone from all CPUs: nobody writes there any more.
	if err := l.objects.EnterWindows.Lookup(uint32(0), &kernel); err != nil {
		return r, fmt.Errorf("read window: %w", err)
	}
	l.runs += kernel.Runs
	l.ns += kernel.Ns
	r.Cost += time.Duration(kernel.Runs)*l.trap + time.Duration(kernel.Ns)
	if heard != nil {
		return r, heard
	}
	if err := l.drain(&r, time.Unix(1, 0)); err != nil { // what is there, no more
		return r, err
	}
	r.read(&kernel, len(w.Sites), l.trap, armed)
	return r, unchanged(mem, w.Sites)
}

// armed has breakpoints stand for the length of the window, and returns for how long the threads were on a CPU meanwhile.
func (l *Listener) armed(r *Result, addresses []uint64, w Window) (ran time.Duration, err error) {
	runtime.LockOSThread() // for its CPU clock
	defer runtime.UnlockOSThread()
	b, err := attach.NewBreakpoints(l.objects.MonitorEnter, addresses, w.Threads, overrun*MaxHits)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	begin := proc.OwnThreadTime()
	if err := b.Arm(); err != nil {
		return 0, err
	}
	r.Cost += proc.OwnThreadTime() - begin
	if err := l.drain(r, time.Now().Add(w.Duration)); err != nil {
		return 0, err
	}
	begin = proc.OwnThreadTime()
	err = b.Disarm()
	r.Cost += proc.OwnThreadTime() - begin
	if err != nil {
		return 0, err
	}
	return b.Ran()
}

// drain reads the stream until the window's end or the deadline, whichever comes first.
func (l *Listener) drain(r *Result, deadline time.Time) error {
	const endBytes = 8 // of a record of the window's end: its number
	l.stream.SetDeadline(deadline)
	for {
		record, err := l.stream.Next()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil
		case err != nil:
			return fmt.Errorf("read stream of monitor enters: %w", err)
		case len(record) != endBytes:
			r.walk(record, l.number, &l.seen)
		case binary.NativeEndian.Uint64(record) == l.number:
			return nil
		}
	}
}
