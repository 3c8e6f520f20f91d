package main

import (
	"context"
	"fmt"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/suite"
)

// A contextGuest is a running program that works when it is told to.
type contextGuest interface {
	// runFor has it do whole iterations until that much time has passed. It fails if what they compute is wrong.
	runFor(d time.Duration) (iterations int, err error)
	pid() int
	close() error
}

func (t contextTrial) start(ctx context.Context, m meter) (contextGuest, error) {
	if !t.vm {
		guest, err := suite.Start(ctx, t.jdk, t.program)
		if err != nil {
			return nil, err
		}
		return suiteGuest{guest}, nil
	}
	vm, err := m.vm()
	if err != nil {
		return nil, err
	}
	run, err := vm.Start(ctx, guests.VMOptions{Program: t.program})
	if err != nil {
		return nil, err
	}
	return vmGuest{run}, nil
}

// A suiteGuest is a real Java program.
type suiteGuest struct{ *suite.Guest }

func (g suiteGuest) runFor(d time.Duration) (int, error) { return g.RunFor(d) }
func (g suiteGuest) pid() int                            { return g.PID() }
func (g suiteGuest) close() error                        { return g.Close() }

func (g vmGuest) runFor(d time.Duration) (int, error) {
	s, err := g.run.RunFor(d)
	return int(s.Iterations), err
}

// A worker has a guest work while other things are done.
type worker struct {
	stop context.CancelFunc
	done chan worked
}

// worked is what a guest did meanwhile.
type worked struct {
	iterations int
	wall       time.Duration
	err        error
}

func startWork(ctx context.Context, g contextGuest) worker {
	ctx, stop := context.WithCancel(ctx)
	w := worker{stop, make(chan worked, 1)}
	go func() {
		const atOnce = 200 * time.Millisecond
		var did worked
		for began := time.Now(); did.err == nil && ctx.Err() == nil; did.wall = time.Since(began) {
			var n int
			n, did.err = g.runFor(atOnce)
			did.iterations += n
		}
		w.done <- did
	}()
	return w
}

// finish lets the guest end its iteration.
func (w worker) finish() (worked, error) {
	w.stop()
	did := <-w.done
	if did.err != nil {
		return did, fmt.Errorf("work: %w", did.err)
	}
	return did, nil
}

// iteration is how long one took on average.
func (w worked) iteration() time.Duration { return w.wall / time.Duration(max(w.iterations, 1)) }
