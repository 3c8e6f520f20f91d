//go:build linux

package usdt

import (
	"math"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/tests/php"
	"github.com/vmprof-agent/vmprof-agent/tests/wait"
)

// Bursts give each call its share, do not change the program's results, and leave the semaphore at
// 0.
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
	b := begin(t, profile.Rate{Hz: 97, Burst: profile.Burst{Stride: 7, Samples: 256}})
	b.look(g.PID())
	const rounds = 2000
	want := run(t, start(t, php.Known), rounds)
	wait.For(t, wait.Long, "there are 60 windows", func() bool {
		if got := run(t, g, rounds); got != want {
			t.Fatalf("the program answered %q, %q without the engine", got, want)
		}
		_, windows := b.sum()
		return windows >= 60
	})
	cost := b.Cost()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if v := semaphoreOf(t, g); v != 0 {
		t.Errorf("semaphore is %d after Close", v)
	}
	graph := b.sampled()
	counts, err := b.objects.ReadCounts()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bursts (%d ticks skipped), %d hits, %d refused, %d samples, cost %+v, own %v", counts[bpf.BurstsArmed],
		counts[bpf.BurstsSkipped], counts[bpf.CallHits], counts[bpf.CallHitsRefused], b.samples, cost, b.own)
	if counts[bpf.CallsAttempted] != counts[bpf.CallsDelivered]+counts[bpf.CallsDroppedRingFull] {
		t.Errorf("%d calls attempted, %d delivered, %d dropped", counts[bpf.CallsAttempted], counts[bpf.CallsDelivered],
			counts[bpf.CallsDroppedRingFull])
	}
	if samples := uint64(b.samples); samples != counts[bpf.CallsDelivered] || samples == 0 || cost.Hits != samples {
		t.Errorf("%d samples, %d delivered, %d paid for", samples, counts[bpf.CallsDelivered], cost.Hits)
	}
	// Other tests cover the weights, which a busy machine disturbs. Here every sample counts as
	// one. A burst spans many rounds, so its samples are at least as good as independent ones. Five
	// deviations.
	for c, n := range byCall(&b.plain) {
		p := float64(truth[c]) / float64(total)
		share, draws := n/b.plain.Total(), float64(b.samples)
		if tolerance := 5*math.Sqrt(p*(1-p)/draws) + 1/draws + 0.01; math.Abs(share-p) > tolerance {
			t.Errorf("%v: share %.4f, want %.4f within %.4f", c, share, p, tolerance)
		}
	}
	if graph.Total() < float64(b.samples) {
		t.Errorf("%d samples stand for %.0f calls", b.samples, graph.Total())
	}
}
