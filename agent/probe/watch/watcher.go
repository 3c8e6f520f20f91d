package watch

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/breakpoint"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/ring"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// Bounds of a watch.
const (
	MaxAddresses = breakpoint.MaxAddresses
	MaxDuration  = time.Minute
)

// A Watcher gives each process at most one watch at a time, and all of them together as many as the
// kernel side has room for.
type Watcher struct {
	root    proc.Root
	threads threadTable
	room    chan struct{} // one element for each watch

	mu      sync.Mutex
	number  uint64                // number of the last watch
	watched map[int]chan struct{} // pids; closed when the watch is over
}

// New returns a Watcher of processes below a root.
func New(root proc.Root) *Watcher {
	w := &Watcher{root: root, room: make(chan struct{}, bpf.MaxWatches), watched: map[int]chan struct{}{}}
	w.threads.root = root
	return w
}

// A Program is the kernel side of watches (watch.bpf.h).
type Program struct {
	Breakpoint *ebpf.Program // runs at every hit
	Watches    *ebpf.Map     // by pid; values begin with bpf.Watch
	Ends       *ebpf.Map     // a ring of the numbers of watches that reached their limit
}

// A Kernel is a pointer to a value of Program.Watches.
type Kernel interface{ Head() *bpf.Watch }

// An Observer opens watches with one program, of several processes at once.
type Observer struct {
	watcher *Watcher
	program Program
	ends    *ring.Reader
	done    chan struct{} // the goroutine that reads ends is gone
	trap    time.Duration // time that a hit takes, without the program

	mu     sync.Mutex
	open   map[uint64]chan struct{} // closed when the watch with that number reached its limit
	runs   uint64                   // runs of the program
	ns     uint64                   // time in the program
	arming time.Duration
}

// unknownRun is what a run of a program is taken to last before one was measured: more than nearly
// all do.
const unknownRun = 2 * time.Microsecond

// Attach sets breakpoints with a program in the agent itself, to see that they work and what they
// cost: some 5 ms. scratch is a value of the program's map. The error says what is missing. Close
// comes before the program's.
func (w *Watcher) Attach(p Program, scratch Kernel) (*Observer, error) {
	o := &Observer{watcher: w, program: p, done: make(chan struct{}), open: map[uint64]chan struct{}{}}
	var err error
	if o.ends, err = ring.NewReader(p.Ends); err != nil {
		return nil, fmt.Errorf("open the ring of finished watches: %w", err)
	}
	go o.dispatch()
	if o.trap, err = o.calibrate(scratch); err != nil {
		return nil, errors.Join(fmt.Errorf("test hardware breakpoints: %w", err), o.Close())
	}
	return o, nil
}

// Close ends the Observer; no watch of it may be open.
func (o *Observer) Close() error {
	err := o.ends.Close()
	<-o.done
	return err
}

// A Cost is what watches took of their processes.
type Cost struct {
	Hits    uint64
	HitTime time.Duration // time for one of them
	// Arming is an upper bound: the CPU time that the agent waited for the threads' CPUs to set and
	// remove breakpoints.
	Arming time.Duration
}

// Cost is what all watches have cost so far.
func (o *Observer) Cost() Cost {
	o.mu.Lock()
	defer o.mu.Unlock()
	return Cost{Hits: o.runs, HitTime: o.hitTime(), Arming: o.arming}
}

// TrapTime is what a hit takes of the process's CPU time, without the program.
func (o *Observer) TrapTime() time.Duration { return o.trap }

// HitTime is what a hit takes of the process's CPU time.
func (o *Observer) HitTime() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.hitTime()
}

func (o *Observer) hitTime() time.Duration {
	if o.runs == 0 {
		return o.trap + unknownRun
	}
	return o.trap + time.Duration(o.ns/o.runs)
}

// dispatch wakes those whose watches reached their limit.
func (o *Observer) dispatch() {
	defer close(o.done)
	for {
		record, err := o.ends.Next()
		if err != nil {
			return // closed
		}
		if number, ok := endOf(record); ok {
			o.end(number)
		}
	}
}

// endOf is the number in a record of a watch's end.
func endOf(raw []byte) (uint64, bool) {
	if len(raw) < 8 {
		return 0, false
	}
	return binary.NativeEndian.Uint64(raw), true
}

// begin returns the number of a new watch, and what is closed when it reaches its limit.
func (o *Observer) begin() (uint64, <-chan struct{}) {
	number := o.watcher.next()
	o.mu.Lock()
	defer o.mu.Unlock()
	end := make(chan struct{})
	o.open[number] = end
	return number, end
}

// end wakes the owner of a watch. It may be gone already.
func (o *Observer) end(number uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if c := o.open[number]; c != nil {
		close(c)
		delete(o.open, number)
	}
}

// next returns the number of a new watch.
func (w *Watcher) next() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.number++
	return w.number
}

// enter waits until the process has no watch and there is room for one more.
func (w *Watcher) enter(ctx context.Context, pid int) (leave func(), err error) {
	for {
		w.mu.Lock()
		other := w.watched[pid]
		if other == nil {
			break
		}
		w.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	mine := make(chan struct{})
	w.watched[pid] = mine
	w.mu.Unlock()
	free := func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.watched, pid)
		close(mine)
	}
	select {
	case w.room <- struct{}{}:
		return func() { <-w.room; free() }, nil
	case <-ctx.Done():
		free()
		return nil, ctx.Err()
	}
}

// Watches is how many processes are watched, or are to be.
func (w *Watcher) Watches() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return max(len(w.watched), len(w.room))
}

// Watches is how many watches are open.
func (o *Observer) Watches() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.open)
}
