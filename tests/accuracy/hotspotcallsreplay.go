package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/exactcalls"
	"github.com/vmprof-agent/vmprof-agent/tests/suite"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A replayed is the calls of an iteration that arrived in code whose calls were counted.
type replayed struct {
	graph   *javaGraph
	callees map[string]bool // that code was of
	codes   int             // that calls could arrive in
	counted int             // of those
	took    time.Duration
}

func (r *replayed) String() string {
	return fmt.Sprintf("replayed %d of %d codes in %.0f s: %.0f calls of %d edges in an iteration",
		r.counted, r.codes, r.took.Seconds(), r.graph.Total(), r.graph.Len())
}

// replayCalls counts all calls of an iteration that arrive in as much code as there is time for. What likely has most
// calls, by some graphs, comes first.
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
			continue // code that is about to go: its successor is not in the list
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

// order sorts codes by the most calls that one of the graphs says their methods have.
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
		return cmp.Or(cmp.Compare(shares[b.VerifiedEntry], shares[a.VerifiedEntry]), cmp.Compare(a.VerifiedEntry, b.VerifiedEntry))
	})
}
