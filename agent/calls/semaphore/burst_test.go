//go:build linux

package semaphore

import (
	"math"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/calls"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/tests/php"
)

// Bursts give each call its share, leave the program's results alone, and leave the semaphore at 0.
func TestLiveBursts(t *testing.T) {
	truth, err := php.Truth()
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, n := range truth {
		total += n
	}
	g := start(t, php.Known, php.Traced)
	b := begin(t, calls.Rate{Hz: 200, Burst: calls.Burst{Stride: 7, Samples: 32}})
	b.look(g.PID())
	const rounds = 20000
	want := run(t, start(t, php.Known), rounds)
	for began := time.Now(); time.Since(began) < 2*time.Second; {
		if got := run(t, g, rounds); got != want {
			t.Fatalf("the program answered %q, %q without the engine", got, want)
		}
	}
	cost := b.Cost()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if v, err := semaphoreOf(g.PID()); err != nil || v != 0 {
		t.Errorf("semaphore is %d after Close, %v", v, err)
	}
	graph := b.sampled()
	counts, err := b.objects.ReadCounts()
	if err != nil {
		t.Fatal(err)
	}
	bursts := counts[bpf.BurstsArmed]
	t.Logf("%d bursts (%d ticks skipped), %d hits, %d refused, %d samples, cost %v", bursts, counts[bpf.BurstsSkipped],
		counts[bpf.CallHits], counts[bpf.CallHitsRefused], b.samples, cost)
	if counts[bpf.CallsAttempted] != counts[bpf.CallsDelivered]+counts[bpf.CallsDroppedRingFull] {
		t.Errorf("%d calls attempted, %d delivered, %d dropped", counts[bpf.CallsAttempted], counts[bpf.CallsDelivered], counts[bpf.CallsDroppedRingFull])
	}
	if samples := uint64(b.samples); samples != counts[bpf.CallsDelivered] || samples < 1000 {
		t.Errorf("%d samples, %d delivered", samples, counts[bpf.CallsDelivered])
	}
	// A burst looks at 224 calls, more than two rounds, so its samples are independent or better. Bursts weigh the same
	// here, but for chance: taken for a factor of two, that doubles the variance of as many draws. Five deviations.
	for c, n := range byCall(graph) {
		p := float64(truth[c]) / float64(total)
		share, draws := n/graph.Total(), float64(b.samples)/2
		if tolerance := 5*math.Sqrt(p*(1-p)/draws) + 1/draws; math.Abs(share-p) > tolerance {
			t.Errorf("%v: share %.4f, want %.4f within %.4f", c, share, p, tolerance)
		}
	}
}
