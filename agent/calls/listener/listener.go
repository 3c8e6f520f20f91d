package listener

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/calls"
	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/ring"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// A Listener opens windows, one at a time for each process, and in up to 16 processes at once.
type Listener struct {
	root    proc.Root
	objects bpf.ListenerObjects
	ends    *ring.Reader
	ended   chan struct{} // the goroutine that reads ends is gone
	trap    time.Duration // of a hit, without the program
	threads threadTable
	room    chan struct{} // one element for each window that is open

	mu     sync.Mutex
	number uint64                   // of the last window
	open   map[uint64]chan struct{} // closed when the window with that number reached its limit
	taken  map[int]chan struct{}    // processes that have a window; closed when it is gone
	runs   uint64                   // of the program
	ns     uint64                   // in it
	arming time.Duration
}

// Open loads the kernel side beside o, and sets breakpoints in the agent itself to see that they work and what they
// cost: some 5 ms. The error says what is missing. Close comes before o's.
func Open(o *bpf.Objects, root proc.Root) (*Listener, error) {
	spec, err := bpf.LoadListener()
	if err != nil {
		return nil, fmt.Errorf("read listener object: %w", err)
	}
	l := &Listener{
		root: root, ended: make(chan struct{}), room: make(chan struct{}, bpf.MaxListenerWindows),
		open: map[uint64]chan struct{}{}, taken: map[int]chan struct{}{},
	}
	l.threads.root = root
	if err := o.LoadBeside(spec, &l.objects); err != nil {
		return nil, fmt.Errorf("load listener program: %w", err)
	}
	if l.ends, err = ring.NewReader(l.objects.ListenerEnds); err != nil {
		l.objects.Close()
		return nil, fmt.Errorf("read ends of windows: %w", err)
	}
	go l.dispatch()
	if l.trap, err = l.calibrate(); err != nil {
		return nil, errors.Join(fmt.Errorf("try out breakpoints: %w", err), l.Close())
	}
	return l, nil
}

// Close ends the Listener; no window may be open.
func (l *Listener) Close() error {
	err := l.ends.Close()
	<-l.ended
	return errors.Join(err, l.objects.Close())
}

// Cost is what all windows have cost their guests. Arming is an upper bound: the CPU time that the agent waited for the
// threads' CPUs to set and remove breakpoints.
func (l *Listener) Cost() calls.Cost {
	l.mu.Lock()
	defer l.mu.Unlock()
	return calls.Cost{Hits: l.runs, HitTime: l.hitTime(), Arming: l.arming}
}

// HitTime is what a hit takes of the guest's CPU time.
func (l *Listener) HitTime() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hitTime()
}

func (l *Listener) hitTime() time.Duration {
	if l.runs == 0 {
		return l.trap
	}
	return l.trap + time.Duration(l.ns/l.runs)
}

// dispatch wakes those whose windows reached their limit.
func (l *Listener) dispatch() {
	defer close(l.ended)
	for {
		record, err := l.ends.Next()
		if err != nil {
			return // closed
		}
		if number, ok := endOf(record); ok {
			l.end(number)
		}
	}
}

// end tells the owner of a window that it is over. It may be gone already.
func (l *Listener) end(number uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.open[number]; c != nil {
		close(c)
		delete(l.open, number)
	}
}
