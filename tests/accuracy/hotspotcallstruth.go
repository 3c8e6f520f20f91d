package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls/exact"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/tests/exactcalls"
	"github.com/vmprof-agent/vmprof-agent/tests/suite"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A replayed is the calls of an iteration that arrived in code whose calls were counted.
type replayed struct {
	graph   *javaGraph
	callees map[string]bool // methods of that code
	codes   int             // number of codes where calls could arrive
	counted int             // number of those that were counted
	took    time.Duration
}

func (r *replayed) String() string {
	return fmt.Sprintf("replayed %d of %d codes in %.0f s: %.0f calls of %d edges in an iteration",
		r.counted, r.codes, r.took.Seconds(), r.graph.Total(), r.graph.Len())
}

// replayCalls counts all calls of an iteration that arrive in as much code as time allows. It
// begins with the code that probably has most calls, according to some graphs.
func (h hotspotManner) replayCalls(guest *suite.Guest, likely ...*javaGraph) (_ *replayed, err error) {
	r, err := exactcalls.StartReplay(guest.PID())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	codes, err := r.Codes()
	if err != nil {
		return nil, err
	}
	name := func(c vmruntime.Compilation) string { return comparableName(r.Method(c).Value().SystemName) }
	order(codes, name, likely)
	out := &replayed{graph: &javaGraph{}, callees: map[string]bool{}, codes: len(codes)}
	begin := time.Now()
	for some := range slices.Chunk(codes, exactcalls.MaxReplayed) {
		if out.took = time.Since(begin); out.took > h.replay {
			break
		}
		g, err := r.Count(some, func() error {
			_, err := guest.Run(1)
			return err
		})
		if errors.Is(err, exactcalls.ErrReplayed) {
			continue // obsolete code: its successor is not in the list
		}
		if err != nil {
			return nil, err
		}
		out.graph.Merge(exactGraph(g))
		out.counted += len(some)
		for _, c := range some {
			out.callees[name(c)] = true
		}
	}
	return out, nil
}

// order sorts codes by the most calls that any of the graphs has for their methods.
func order(codes []vmruntime.Compilation, name func(vmruntime.Compilation) string, likely []*javaGraph) {
	share := map[string]float64{}
	for _, g := range likely {
		for callee, n := range g.Callees() {
			share[callee] = max(share[callee], n/g.Total())
		}
	}
	shares := make(map[uint64]float64, len(codes)) // by entry
	for _, c := range codes {
		shares[c.VerifiedEntry] = share[name(c)]
	}
	slices.SortFunc(codes, func(a, b vmruntime.Compilation) int {
		return cmp.Or(cmp.Compare(shares[b.VerifiedEntry], shares[a.VerifiedEntry]),
			cmp.Compare(a.VerifiedEntry, b.VerifiedEntry))
	})
}

// An exactIteration is all calls of a program's iterations, in a JVM that reports each call.
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
	// leastSteady is the overlap of two recordings of the truth above which the truth counts as
	// deterministic.
	leastSteady = 99.5 // %
	// mostLost is the fraction of the calls that may be missing: those of threads that the program
	// hardly uses.
	mostLost = 0.001
	// slowIteration is the time to count the first iteration above which it is not repeated three
	// times.
	slowIteration = 30 * time.Second
)

// count counts the calls of whole iterations, twice. Without inlining all call sites are known; the
// calls are the same.
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

// countIterations counts the calls of that many iterations, and returns how long that took.
func countIterations(
	session *exactcalls.Session, guest *suite.Guest, iterations int,
) (*javaGraph, time.Duration, error) {
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
