package monitors

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/ring"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/watch"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A Listener opens windows, one at a time. Only one goroutine may use it.
type Listener struct {
	objects  *bpf.MonitorEnterObjects
	observer *watch.Observer
	stream   *ring.Reader
	seen     bpf.Observation
}

// Open loads the kernel side next to o. It sets breakpoints in the agent itself, to check that they
// work and to measure their cost: some 10 ms. heaps are the kernel side's, of bpf.ProbeObjects.
// Close must be called before o's.
func Open(o *bpf.Objects, heaps *ebpf.Map, w *watch.Watcher) (*Listener, error) {
	objects, err := o.LoadEnters(heaps)
	if err != nil {
		return nil, err
	}
	program := watch.Program{Breakpoint: objects.MonitorEnter, Watches: objects.EnterWatches, Ends: objects.WatchEnds}
	observer, err := w.Attach(program, &bpf.MonitorWatch{})
	if err != nil {
		return nil, errors.Join(err, objects.Close())
	}
	stream, err := ring.NewReader(objects.Events)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open stream of monitor enters: %w", err), observer.Close(), objects.Close())
	}
	return &Listener{objects: objects, observer: observer, stream: stream}, nil
}

// Close frees all resources.
func (l *Listener) Close() error {
	return errors.Join(l.stream.Close(), l.observer.Close(), l.objects.Close())
}

// HitTime is what a hit takes of the process's CPU time.
func (l *Listener) HitTime() time.Duration { return l.observer.HitTime() }

// Listen opens a window on a process and returns what it observed. If another watch of the process
// is open, it waits. watch.ErrChanged and errors for which watch.Refused is true are temporary:
// another window may succeed. Cost is set even if a window failed. When ctx is done, the window is
// closed and void.
func (l *Listener) Listen(ctx context.Context, id proc.Identity, mem vmruntime.Memory, w Window) (r Result, err error) {
	if len(w.Sites) < 1 || len(w.Sites) > MaxSites || w.Duration <= 0 {
		return r, fmt.Errorf("window of %d sites for %v: %w", len(w.Sites), w.Duration, unix.EINVAL)
	}
	request := watch.Request{
		Identity: id, Threads: w.Threads, Duration: w.Duration, Hits: MaxHits, Overrun: overrun * MaxHits,
		Deliver: true,
		Before:  func() error { return unchanged(mem, w.Sites) },
	}
	var kernel bpf.MonitorWatch
	for i := range w.Sites {
		kernel.Sites[i] = w.Sites[i].kernel
		request.Addresses = append(request.Addresses, w.Sites[i].Address)
	}
	observation, failed := l.observer.Watch(ctx, request, &kernel)
	r.Cost = observation.Cost
	err = l.drain(&r, observation.Number)
	if failed != nil {
		return Result{Cost: r.Cost}, failed
	}
	if err != nil {
		return r, err
	}
	r.read(&kernel, len(w.Sites), l.observer.TrapTime(), observation.Ran)
	return r, unchanged(mem, w.Sites)
}

// drain reads the contexts of a finished watch.
func (l *Listener) drain(r *Result, number uint64) error {
	l.stream.SetDeadline(time.Unix(1, 0)) // what is there now, without waiting
	for {
		record, err := l.stream.Next()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil
		case err != nil:
			return fmt.Errorf("read stream of monitor enters: %w", err)
		}
		r.walk(record, number, &l.seen)
	}
}
