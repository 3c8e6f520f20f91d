package guest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
)

func TestQueueOneWorkerAProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var inside, most, done atomic.Int64
		n := newQueue(4, func(*Process) {
			if v := inside.Add(1); v > most.Load() {
				most.Store(v)
			}
			time.Sleep(time.Millisecond)
			inside.Add(-1)
			done.Add(1)
		})
		defer n.close()
		p := NewProcess(proc.Identity{PID: 1})
		for range 20 { // two milliseconds: within the first run, within the second, and once between them
			n.submit(p)
			time.Sleep(100 * time.Microsecond)
		}
		n.wait(t.Context(), []*Process{p}, time.Minute)
		if most.Load() != 1 {
			t.Errorf("%d workers had the process at once", most.Load())
		}
		if done.Load() != 3 || inside.Load() != 0 {
			t.Errorf("%d runs, %d not finished when wait returned", done.Load(), inside.Load())
		}
	})
}

// What is submitted while a worker has the process is worked on afterwards.
func TestQueueAgain(t *testing.T) {
	begun, goOn := make(chan struct{}), make(chan struct{})
	var runs atomic.Int64
	n := newQueue(1, func(*Process) {
		if runs.Add(1) == 1 {
			close(begun)
			<-goOn
		}
	})
	defer n.close()
	p := NewProcess(proc.Identity{PID: 1})
	n.submit(p)
	<-begun
	n.submit(p)
	close(goOn)
	n.wait(context.Background(), []*Process{p}, time.Minute)
	if runs.Load() != 2 {
		t.Errorf("%d runs, want 2", runs.Load())
	}
}

// A process is submitted after the time; timers of a closed queue keep nothing in memory.
func TestQueueLater(t *testing.T) {
	done := make(chan struct{}, 2)
	n := newQueue(1, func(*Process) { done <- struct{}{} })
	p := NewProcess(proc.Identity{PID: 1})
	n.submitLater(p, time.Microsecond)
	<-done
	timers := func() int {
		n.mu.Lock()
		defer n.mu.Unlock()
		return len(n.timers)
	}
	if n := timers(); n != 0 {
		t.Errorf("%d timers are left of one that has ended", n)
	}
	n.submitLater(p, time.Hour)
	if n := timers(); n != 1 {
		t.Errorf("%d timers run, want 1", n)
	}
	n.close()
	n.submitLater(p, time.Microsecond)
	if n := timers(); n != 0 {
		t.Errorf("%d timers run of a closed queue", n)
	}
}

func TestQueueDeadline(t *testing.T) {
	release := make(chan struct{})
	n := newQueue(1, func(*Process) { <-release })
	p := NewProcess(proc.Identity{PID: 1})
	n.submit(p)
	n.wait(context.Background(), []*Process{p}, time.Millisecond) // returns although the worker hangs
	close(release)
	n.close()
}

// A worker that waits for a process is replaced: others are worked on, nobody waits for the
// process, and the queue closes. When the worker comes back, what came meanwhile is worked on.
func TestQueueReplace(t *testing.T) {
	hangs, other := NewProcess(proc.Identity{PID: 1}), NewProcess(proc.Identity{PID: 2})
	begun, goOn := make(chan struct{}, 10), make(chan struct{})
	var runs, workers atomic.Int64
	q := newQueue(1, func(p *Process) {
		if n := workers.Add(1); n > 2 {
			t.Errorf("%d workers", n)
		}
		defer workers.Add(-1)
		if p == hangs {
			begun <- struct{}{}
			<-goOn
		}
		runs.Add(1)
	})
	q.submit(hangs)
	<-begun
	q.submit(hangs)
	q.submit(other)
	for range 3 { // only the first one counts
		q.replace(hangs)
	}
	q.replace(other)
	ctx, cancel := context.WithTimeout(t.Context(), waitLong)
	defer cancel()
	q.wait(ctx, []*Process{hangs, other}, waitLong)
	if runs.Load() != 1 || ctx.Err() != nil || !q.isLost(hangs) || q.isLost(other) {
		t.Errorf("%d of the others were worked on, %v", runs.Load(), ctx.Err())
	}
	goOn <- struct{}{}
	<-begun // by the worker that is left
	if q.isLost(hangs) {
		t.Error("the process is still lost")
	}
	goOn <- struct{}{}
	q.wait(ctx, []*Process{hangs}, waitLong)
	if runs.Load() != 3 || ctx.Err() != nil {
		t.Errorf("%d runs, want 3; %v", runs.Load(), ctx.Err())
	}

	q.submit(hangs)
	<-begun
	q.replace(hangs)
	q.close() // although the worker hangs
	close(goOn)
}

// Who wants something of a process whose worker was replaced is refused, whether he came before or
// after that.
func TestLostProcess(t *testing.T) {
	rs := NewResolver(Config{})
	begun, goOn := make(chan struct{}, 10), make(chan struct{})
	rs.queue = newQueue(1, func(*Process) { begun <- struct{}{}; <-goOn }) // again, before the queue is closed
	defer rs.queue.close()
	defer close(goOn)
	p := NewProcess(proc.Identity{PID: 1})
	before := make(chan error)
	go func() { before <- rs.WithWorker(t.Context(), p, func() error { return nil }) }()
	<-begun
	rs.lost(p)
	if err := <-before; !errors.Is(err, proc.ErrQuarantined) {
		t.Errorf("who came before: %v, want %v", err, proc.ErrQuarantined)
	}
	if err := rs.WithWorker(t.Context(), p, func() error { return nil }); !errors.Is(err, proc.ErrQuarantined) {
		t.Errorf("who came after: %v, want %v", err, proc.ErrQuarantined)
	}
}
