package target

import (
	"context"
	"slices"
	"sync"
	"time"
)

// queue is the queue of processes that have work for the naming workers. A process is worked on by one worker at a
// time, so what belongs to its guest needs no lock. No work happens on the goroutine that drains the ring.
type queue struct {
	mu      sync.Mutex
	queue   []*Process
	state   map[*Process]workState
	closed  bool
	work    func(*Process)
	changed *sync.Cond // queue or state changed
	wg      sync.WaitGroup
}

type workState uint8

const (
	idle    workState = iota
	queued            // in the queue
	working           // with a worker
	again             // with a worker, and more came meanwhile
)

// newQueue starts that many workers, each of which calls work for one process at a time.
func newQueue(workers int, work func(*Process)) *queue {
	n := &queue{work: work, state: map[*Process]workState{}}
	n.changed = sync.NewCond(&n.mu)
	n.start(workers)
	return n
}

// start starts that many more workers.
func (n *queue) start(workers int) {
	for range workers {
		n.wg.Go(n.run)
	}
}

// submit has p worked on soon.
func (n *queue) submit(p *Process) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch n.state[p] {
	case idle:
		n.state[p] = queued
		n.queue = append(n.queue, p)
	case working:
		n.state[p] = again
	}
	n.changed.Broadcast()
}

// submitLater is submit after d, unless the queue was closed by then.
func (n *queue) submitLater(p *Process, d time.Duration) {
	time.AfterFunc(d, func() { n.submit(p) })
}

func (n *queue) run() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		for len(n.queue) == 0 && !n.closed {
			n.changed.Wait()
		}
		if n.closed {
			return
		}
		p := n.queue[0]
		n.queue = n.queue[1:]
		n.state[p] = working
		n.unlocked(func() { n.work(p) })
		if n.state[p] == again {
			n.state[p] = queued
			n.queue = append(n.queue, p)
		} else {
			delete(n.state, p)
		}
		n.changed.Broadcast()
	}
}

// unlocked calls f without the lock, which its caller has. However f ends, the caller has it again.
func (n *queue) unlocked(f func()) {
	n.mu.Unlock()
	defer n.mu.Lock()
	f()
}

// wait returns when none of these processes has work left, or after the deadline.
func (n *queue) wait(ctx context.Context, of []*Process, deadline time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.changed.Broadcast()
	})()
	n.mu.Lock()
	defer n.mu.Unlock()
	for ctx.Err() == nil && !n.closed {
		if !slices.ContainsFunc(of, func(p *Process) bool { return n.state[p] != idle }) {
			return
		}
		n.changed.Wait()
	}
}

// close ends the workers; what is queued is dropped.
func (n *queue) close() {
	n.mu.Lock()
	n.closed = true
	n.changed.Broadcast()
	n.mu.Unlock()
	n.wg.Wait()
}
