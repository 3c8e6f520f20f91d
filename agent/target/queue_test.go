package target

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/proc"
)

func TestQueueOneWorkerAProcess(t *testing.T) {
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
	for range 20 {
		n.submit(p)
		time.Sleep(100 * time.Microsecond)
	}
	n.wait(context.Background(), []*Process{p}, time.Minute)
	if most.Load() != 1 {
		t.Errorf("%d workers had the process at once", most.Load())
	}
	if done.Load() == 0 || inside.Load() != 0 {
		t.Errorf("%d runs, %d not finished when wait returned", done.Load(), inside.Load())
	}
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

func TestQueueDeadline(t *testing.T) {
	release := make(chan struct{})
	n := newQueue(1, func(*Process) { <-release })
	p := NewProcess(proc.Identity{PID: 1})
	n.submit(p)
	n.wait(context.Background(), []*Process{p}, time.Millisecond) // returns although the worker hangs
	close(release)
	n.close()
}
