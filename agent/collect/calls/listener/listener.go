package listener

import (
	"errors"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/budget"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/watch"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// A Listener watches entry points, with at most one window at a time for each process.
type Listener struct {
	objects  *bpf.ListenerObjects
	observer *watch.Observer
}

// Open loads the kernel side next to o. It sets breakpoints in the agent itself, to check that they
// work and to measure their cost: some 5 ms. The error says what is missing. Close must be called
// before o's.
func Open(o *bpf.Objects, w *watch.Watcher) (*Listener, error) {
	objects, err := o.LoadListeners()
	if err != nil {
		return nil, err
	}
	program := watch.Program{Breakpoint: objects.ListenerBreakpoint, Watches: objects.ListenerWatches,
		Ends: objects.WatchEnds}
	observer, err := w.Attach(program, &bpf.CallWatch{})
	if err != nil {
		return nil, errors.Join(err, objects.Close())
	}
	return &Listener{objects: objects, observer: observer}, nil
}

// Close ends the Listener; no window may be open.
func (l *Listener) Close() error { return errors.Join(l.observer.Close(), l.objects.Close()) }

// Cost is what all windows have cost their processes.
func (l *Listener) Cost() budget.Cost {
	c := l.observer.Cost()
	return budget.Cost{Hits: c.Hits, HitTime: c.HitTime, Arming: c.Arming}
}

// HitTime is what a hit takes of the process's CPU time.
func (l *Listener) HitTime() time.Duration { return l.observer.HitTime() }
