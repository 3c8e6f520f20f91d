package guest

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A queue has the processes that have work for the workers. A process is with one worker at a time.
// No work happens on the goroutine that drains the ring.
type queue struct {
	mu      sync.Mutex
	waiting []*Process
	state   map[*Process]workState
	lost    map[*Process]struct{}    // processes with a worker that has been replaced
	timers  map[*time.Timer]struct{} // timers of submitLater
	closed  bool
	work    func(*Process)
	ready   *sync.Cond     // waiting has one more, or closed changed: workers wait for it
	changed *sync.Cond     // state or lost changed
	wg      sync.WaitGroup // workers that have not been replaced
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
	q := &queue{work: work, state: map[*Process]workState{}, lost: map[*Process]struct{}{},
		timers: map[*time.Timer]struct{}{}}
	q.ready, q.changed = sync.NewCond(&q.mu), sync.NewCond(&q.mu)
	q.start(workers)
	return q
}

// start starts that many more workers.
func (q *queue) start(workers int) {
	for range workers {
		q.wg.Add(1)
		go func() {
			if !q.run() {
				q.wg.Done()
			}
		}()
	}
}

// replace starts a worker in place of the one that has p, as that waits for p, and nobody knows for
// how long. That worker ends when it is done with p; until then nobody else works on p, and nobody
// waits for that.
func (q *queue) replace(p *Process) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, lost := q.lost[p]; lost || q.state[p] < working {
		return
	}
	q.lost[p] = struct{}{}
	q.start(1)
	q.wg.Done()
	q.changed.Broadcast()
}

// isLost reports whether the worker that has p has been replaced.
func (q *queue) isLost(p *Process) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, lost := q.lost[p]
	return lost
}

// submit has p worked on soon.
func (q *queue) submit(p *Process) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch q.state[p] {
	case idle:
		q.enqueue(p)
	case working:
		q.state[p] = again
	}
}

// enqueue adds p to the queue, and wakes a worker; the lock is held.
func (q *queue) enqueue(p *Process) {
	q.state[p] = queued
	q.waiting = append(q.waiting, p)
	q.ready.Signal()
}

// submitLater is submit after d, unless the queue was closed by then.
func (q *queue) submitLater(p *Process, d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(d, func() {
		q.mu.Lock() // This waits until timer is set.
		delete(q.timers, timer)
		q.mu.Unlock()
		q.submit(p)
	})
	q.timers[timer] = struct{}{}
}

// run is a worker. It reports whether it was replaced.
func (q *queue) run() (replaced bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !replaced {
		for len(q.waiting) == 0 && !q.closed {
			q.ready.Wait()
		}
		if q.closed {
			return false
		}
		p := q.waiting[0]
		q.waiting = q.waiting[1:]
		q.state[p] = working
		q.unlocked(func() { q.work(p) })
		_, replaced = q.lost[p]
		delete(q.lost, p)
		if q.state[p] == again {
			q.enqueue(p)
		} else {
			delete(q.state, p)
		}
		q.changed.Broadcast()
	}
	return replaced
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
		if !slices.ContainsFunc(of, q.busy) {
			return
		}
		q.changed.Wait()
	}
}

// busy reports whether p has work that ends; the lock is held.
func (q *queue) busy(p *Process) bool {
	_, lost := q.lost[p]
	return q.state[p] != idle && !lost
}

// close ends the workers; what is queued is dropped, and what timers would queue. It does not wait
// for those that were replaced.
func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	for timer := range q.timers {
		timer.Stop() // it would keep all processes in memory
	}
	clear(q.timers)
	q.ready.Broadcast()
	q.changed.Broadcast()
	q.mu.Unlock()
	q.wg.Wait()
}

// A job is something to be done with what belongs to the worker that has a process.
type job struct {
	ctx  context.Context // nobody waits any more when it has ended
	do   func() error
	done chan error // holds one
}

// WithVM has p's worker call do with p's VM, and returns the error of do. It is proc.ErrGone if p
// has ended or has no VM. If ctx ends first, do may still run to its end: it must not write where
// the caller reads.
func (rs *Resolver) WithVM(ctx context.Context, p *Process, do func(*VM) error) error {
	return rs.WithWorker(ctx, p, func() error {
		if g := p.work.vm; g != nil {
			return do(g)
		}
		return fmt.Errorf("process %d has no VM: %w", p.PID, proc.ErrGone)
	})
}

// WithWorker is WithVM for what needs no VM.
func (rs *Resolver) WithWorker(ctx context.Context, p *Process, do func() error) error {
	j := job{ctx, do, make(chan error, 1)}
	p.mu.Lock()
	p.jobs = append(p.jobs, j)
	p.mu.Unlock()
	rs.queue.submit(p)
	if rs.queue.isLost(p) {
		rs.refuseJobs(p)
	}
	select {
	case err := <-j.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// lost has another worker take the place of the one that has p: it waits for a read of p. Nobody
// waits for p.
func (rs *Resolver) lost(p *Process) {
	rs.queue.replace(p)
	rs.refuseJobs(p)
}

// refuseJobs answers those who left something for p's worker, as p does not answer.
func (rs *Resolver) refuseJobs(p *Process) {
	p.mu.Lock()
	jobs := p.jobs
	p.jobs = nil
	p.mu.Unlock()
	for _, j := range jobs {
		j.done <- fmt.Errorf("process %d: %w", p.PID, proc.ErrQuarantined)
	}
}

// doJobs does what others have left for p's worker.
func (p *Process) doJobs() {
	p.mu.Lock()
	jobs := p.jobs
	p.jobs = nil
	p.mu.Unlock()
	var failed error
	for _, j := range jobs {
		err := cmp.Or(failed, j.ctx.Err())
		if err == nil {
			err = proc.Catch(j.do)
		}
		if _, ok := err.(*proc.PanicError); ok {
			failed = err // what the others would use may be half changed
		}
		j.done <- err
	}
	proc.Repanic(failed)
}

// ClassNames has p's worker name classes of its VM, by address; those that cannot be named are
// missing. Addresses are valid until classes are unloaded.
func (rs *Resolver) ClassNames(ctx context.Context, p *Process, klasses iter.Seq[uint64]) (map[uint64]string, error) {
	done := make(chan map[uint64]string, 1)
	err := rs.WithVM(ctx, p, func(g *VM) error {
		reader, err := As[vmruntime.ClassReader](g)
		if err != nil {
			return err
		}
		names := map[uint64]string{}
		epoch := rs.ClassEpoch(g)
		for klass := range klasses {
			if name, err := reader.ClassName(klass, epoch); err == nil {
				names[klass] = name
			}
		}
		done <- names
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("name classes: %w", err)
	}
	return <-done, nil
}
