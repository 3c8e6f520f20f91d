package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/calls/exact"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/tests/exactcalls"
	"github.com/vmprof-agent/vmprof-agent/tests/suite"
)

// An exactIteration is all calls of a program's iterations, in a JVM that tells of each.
type exactIteration struct {
	graph      *javaGraph
	iterations int
	steady     float64 // overlap with an iteration before, in percent
	checksum   uint64
}

func (i *exactIteration) String() string {
	return fmt.Sprintf("%.0f calls of %d edges in %d iterations, which overlap with the one before by %.3f%%",
		i.graph.Total(), i.graph.Len(), i.iterations, i.steady)
}

const (
	// leastSteady is how much two recordings of the truth must have in common for it to be one.
	leastSteady = 99.5 // %
	// mostLost is what part of the calls may be missing there: those of threads that the program hardly uses.
	mostLost = 0.001
	// slowIteration is how long counting the first iteration takes if it is not to be done three times.
	slowIteration = 30 * time.Second
)

// count counts the calls of whole iterations, twice. Without inlining all places of calls are known; the calls are the
// same.
func (h hotspotManner) count(ctx context.Context, t hotspotTrial) (_ *exactIteration, err error) {
	truth := &exactIteration{}
	guest, err := suite.StartSmall(ctx, t.jdk, t.program, "-XX:+"+exact.Flag, exact.NoC1Inlining, noInlining)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, guest.Close()) }()
	if _, err := guest.RunFor(h.warmup); err != nil {
		return nil, err
	}
	session, err := exactcalls.Attach(guest.PID(), exact.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, session.Close()) }()

	first, took, err := countIterations(session, guest, 1)
	if err != nil {
		return nil, err
	}
	truth.iterations = 2
	if took > slowIteration {
		truth.iterations = 1
	}
	if truth.graph, _, err = countIterations(session, guest, truth.iterations); err != nil {
		return nil, err
	}
	truth.checksum = guest.Checksum()
	if truth.steady = cct.Overlap(first, truth.graph); truth.steady < leastSteady {
		return nil, fmt.Errorf("the program is not the same in every iteration: %v", truth)
	}
	return truth, nil
}

// countIterations counts the calls of so many iterations, and says how long that took.
func countIterations(session *exactcalls.Session, guest *suite.Guest, iterations int) (*javaGraph, time.Duration, error) {
	begin, err := session.Snapshot()
	if err != nil {
		return nil, 0, err
	}
	ran, err := guest.Run(iterations)
	if err != nil {
		return nil, 0, err
	}
	counted, err := session.Since(begin)
	if err != nil {
		return nil, 0, err
	}
	lost := float64(counted.Losses.NoEdge + counted.Losses.NoThread)
	if lost > mostLost*float64(counted.Calls) || counted.Unnamed > 0 {
		return nil, 0, fmt.Errorf("%d methods have no name; lost: %q", counted.Unnamed, counted.Losses.Notes())
	}
	var took time.Duration
	for _, i := range ran {
		took += i.Wall
	}
	return exactGraph(counted.Logical), took, nil
}
