package fold

import (
	"math/rand/v2"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

// Sites of a fair draw are in no order, however unequal they are, and if the thread does something
// else after a while. Those of a round are.
func TestInStep(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, tt := range []struct {
		name string
		at   func(i int) int
		want bool
	}{
		{"one site", func(int) int { return 0 }, false},
		{"two, at random", func(int) int { return rng.IntN(2) }, false},
		{"one mostly", func(int) int { return max(rng.IntN(20)-18, 0) }, false},
		{"many", func(int) int { return rng.IntN(500) }, false},
		{"phases", func(i int) int { return i/1000*2 + rng.IntN(2) }, false},
		{"a round of two", func(i int) int { return i % 2 }, true},
		{"a round of eight, in which one comes often", func(i int) int { return []int{0, 1, 0, 2, 0, 3, 0, 4}[i%8] },
			true},
		{"runs", func(i int) int { return i / 4 % 3 }, true},
	} {
		var o order
		for i := range 4000 {
			o.add(uint32(i%2), site{context: cct.NodeID(tt.at(i / 2))}, bufferEnd{})
		}
		if o.inStep() != tt.want {
			t.Errorf("%s: in step: %t; %v pairs of %v ± %v", tt.name, o.inStep(), o.equal, o.expected, o.variance)
		}
	}
	var many order
	for i := range 2 * mostSequences {
		many.add(uint32(i), site{}, bufferEnd{})
	}
	if len(many.threads) != mostSequences || len(many.last) != mostSequences {
		t.Errorf("%d and %d threads are kept", len(many.threads), len(many.last))
	}
}

// One site alone may have others in step with it, unless buffers differ.
func TestOneSite(t *testing.T) {
	for _, tt := range []struct {
		name  string
		sites int
		bytes func(i int) float64
		want  string
	}{
		{"buffers alike", 1, func(int) float64 { return 1 << 16 }, profile.OneSite},
		{"a collection now and then", 1, func(i int) float64 { return float64(1<<16 - i%50/49) }, profile.OneSite},
		{"three lengths in turn", 1, func(i int) float64 { return float64(1<<16 + i%3) }, profile.OneSite},
		{"buffers that differ", 1, func(i int) float64 { return float64(i) }, ""},
		{"two sites", 2, func(int) float64 { return 1 << 16 }, ""},
	} {
		var o order
		if o.note() != "" {
			t.Errorf("of no events: %s", o.note())
		}
		rng := rand.New(rand.NewPCG(1, 2))
		for i := range 400 {
			o.add(7, site{context: cct.NodeID(rng.IntN(tt.sites))}, bufferEnd{objects: 1, bytes: tt.bytes(i)})
		}
		if got := o.note(); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
