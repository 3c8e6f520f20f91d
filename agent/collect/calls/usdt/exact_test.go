//go:build linux

package usdt

import (
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/tests/php"
)

// byCall converts a graph to the form of the program's ground truth.
func byCall(g *profile.Graph) map[php.Call]float64 {
	m := map[php.Call]float64{}
	for e, n := range g.Edges() {
		m[php.Call{Caller: e.Caller.Value().Function, Callee: e.Callee.Value().Function, Line: int(e.Site.Line)}] += n
	}
	return m
}

// Every call is counted, under its name, at its line.
func TestLiveExact(t *testing.T) {
	g := start(t, php.Known, php.Traced)
	b := begin(t, profile.Rate{Hz: 0, Burst: profile.Burst{Stride: 1, Samples: 1}})
	b.look(g.PID())
	count, err := b.Exact(g.PID())
	if err != nil {
		t.Fatal(err)
	}
	const rounds = 23
	answer := run(t, g, rounds)
	graph, err := count.Stop()
	if err != nil {
		t.Fatal(err)
	}
	if plain := run(t, start(t, php.Known), rounds); plain != answer {
		t.Errorf("the program answered %q, %q without the engine", answer, plain)
	}
	truth, err := php.Truth()
	if err != nil {
		t.Fatal(err)
	}
	got := byCall(graph)
	for c, n := range truth {
		if got[c] != float64(rounds*n) {
			t.Errorf("%v: %v calls, want %d", c, got[c], rounds*n)
		}
		delete(got, c)
	}
	for c, n := range got {
		if c.Callee != "Round::all" || n != 1 { // once an order
			t.Errorf("%v: %v calls that the program did not make", c, n)
		}
	}
}
