package target

import (
	"context"
	"slices"
	"sync"
	"time"
)

// A queue has the processes that have work for the workers. A process is with one worker at a time. No work happens on the goroutine
// that drains the ring.
type queue struct {
	mu      sync.Mutex
	waiting []*Process
	state   map[*Process]workState
	closed  bool
	work    func(*Process)
	changed *sync.Cond // waiting or state changed
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
	q := &queue{work: work, state: map[*Process]workState{}}
	q.changed = sync.NewCond(&q.mu)
	q.start(workers)
	return q
}

// start starts that many more workers.
func (q *queue) start(workers int) {
	for range workers {
		q.wg.Go(q.run)
	}
}

// submit has p worked on soon.
func (q *queue) submit(p *Process) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch q.state[p] {
	case idle:
		q.state[p] = queued
		q.waiting = append(q.waiting, p)
	case working:
		q.state[p] = again
	}
	q.changed.Broadcast()
}

// submitLater is submit after d, unless the queue was closed by then.
func (q *queue) submitLater(p *Process, d time.Duration) {
	time.AfterFunc(d, func() { q.submit(p) })
}

func (q *queue) run() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		for len(q.waiting) == 0 && !q.closed {
			q.changed.Wait()
		}
		if q.closed {
			return
		}
		p := q.waiting[0]
		q.waiting = q.waiting[1:]
		q.state[p] = working
		q.unlocked(func() { q.work(p) })
		if q.state[p] == again {
			q.state[p] = queued
			q.waiting = append(q.waiting, p)
		} else {
			delete(q.state, p)
		}
		q.changed.Broadcast()
	}
}

// unlocked calls f without the lock, which its caller has. However f ends, the caller has it again.
func (q *queue) unlocked(f func()) {
	q.mu.Unlock()
	defer q.mu.Lock()
	f()
}

// wait returns when none of these processes has work left, or after the deadline.
func (q *queue) wait(ctx context.Context, of []*Process, deadline time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.changed.Broadcast()
	})()
	q.mu.Lock()
	defer q.mu.Unlock()
	for ctx.Err() == nil && !q.closed {
		if !slices.ContainsFunc(of, func(p *Process) bool { return q.state[p] != idle }) {
			return
		}
		q.changed.Wait()
	}
}

// close ends the workers; what is queued is dropped.
func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.changed.Broadcast()
	q.mu.Unlock()
	q.wg.Wait()
}
