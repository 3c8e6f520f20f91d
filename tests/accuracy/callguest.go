package main

import (
	"context"
	"fmt"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/php"
	"github.com/vmprof-agent/vmprof-agent/tests/wait"
)

// A callGuest is a running program that knows how often it makes each call, and works on request.
type callGuest interface {
	// work runs that many iterations, and returns their CPU time.
	work(iterations int) (time.Duration, error)
	// await lets it work until a newly started agent samples its calls.
	await() error
	// truth is the graph of all work since the last call of truth.
	truth() (*callGraph, error)
	pid() int
	close() error
}

// awaitLimit is how long an agent may take until it samples.
const awaitLimit = 20 * time.Second

// A vmGuest is the reference guest with one of its programs.
type vmGuest struct{ run *guests.VMRun }

func (g vmGuest) work(iterations int) (time.Duration, error) {
	s, err := g.run.Run(iterations)
	return s.CPU, err
}

func (g vmGuest) await() error {
	if err := g.run.WaitForAgent(); err != nil {
		return err
	}
	return wait.Until(context.Background(), awaitLimit, "the guest, which is connected to the agent, is sampled",
		func() (bool, error) {
			if _, err := g.run.RunFor(20 * time.Millisecond); err != nil {
				return false, err
			}
			return g.run.Sampled()
		})
}

func (g vmGuest) truth() (*callGraph, error) { return g.run.Graph() }
func (g vmGuest) pid() int                   { return g.run.Pid() }
func (g vmGuest) close() error               { return g.run.Close() }

// A phpGuest is PHP-Parser, which does the same work in every iteration.
type phpGuest struct {
	run        *php.Guest
	iteration  map[php.Call]int
	iterations int    // since the last call of truth
	answer     string // to every order, without the number of iterations
}

// startPHP starts PHP-Parser, and makes PHP itself count the calls of an iteration in another
// process.
func startPHP(ctx context.Context) (*phpGuest, error) {
	iteration, err := php.Count(ctx, php.Parser)
	if err != nil {
		return nil, err
	}
	run, err := php.Start(ctx, php.Parser, php.Traced)
	if err != nil {
		return nil, err
	}
	return &phpGuest{run: run, iteration: iteration}, nil
}

// work fails if the program computes a wrong result.
func (g *phpGuest) work(iterations int) (time.Duration, error) {
	before, err := jvm.CPUTime(g.pid())
	if err != nil {
		return 0, err
	}
	answer, err := g.run.Run(iterations)
	if err != nil {
		return 0, err
	}
	after, err := jvm.CPUTime(g.pid())
	if err != nil {
		return 0, err
	}
	var n int
	var computed string
	if _, err := fmt.Sscan(answer, &n, &computed); err != nil {
		return 0, fmt.Errorf("PHP answers %q: %w", answer, err)
	}
	if g.answer == "" {
		g.answer = computed
	}
	if computed != g.answer {
		return 0, fmt.Errorf("PHP computed %s, and %s before", computed, g.answer)
	}
	g.iterations += n
	return after - before, nil
}

func (g *phpGuest) truth() (*callGraph, error) {
	graph := &callGraph{}
	for call, n := range g.iteration {
		graph.Add(guests.VMEdge{Caller: call.Caller, Site: call.Line, Callee: call.Callee}, float64(n*g.iterations))
	}
	g.iterations = 0
	return graph, nil
}

// await runs an iteration, in which it will be found; PHP cannot report when.
func (g *phpGuest) await() error {
	_, err := g.work(1)
	return err
}

func (g *phpGuest) pid() int     { return g.run.PID() }
func (g *phpGuest) close() error { return g.run.Close() }
