package growth

import (
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold/foldtest"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// The first samples have each stack once, those after them the same ones; and what is named before
// is all that they need.
func TestStacks(t *testing.T) {
	p := &program{methods: 500, code: make([]byte, 1), id: foldtest.Identity{PID: 1}}
	const count, cpus = 960, 16
	s := newStacks(p, count, cpus)
	var decoded bpf.Sample
	decode := func(raw []byte) [depth]bpf.Frame {
		if err := bpf.DecodeSample(raw, &decoded); err != nil {
			t.Fatal(err)
		}
		return [depth]bpf.Frame(decoded.User)
	}
	callers, leaves := map[bpf.Frame]bool{}, map[bpf.Frame]bool{}
	for i := range s.covers() {
		stack := decode(s.cover(i, 1))
		leaves[stack[0]] = true
		for _, f := range stack[1:] {
			callers[f] = true
		}
	}
	if len(callers) != p.methods {
		t.Errorf("%d methods are named, want %d", len(callers), p.methods)
	}
	type threadStack struct {
		tid    uint32
		frames [depth]bpf.Frame
	}
	seen := map[threadStack]int{}
	for i := range 2 * count {
		frames := decode(s.sample(i, 1))
		seen[threadStack{decoded.Tid, frames}]++
		if !leaves[frames[0]] {
			t.Fatalf("sample %d: its leaf has no name", i)
		}
		for _, f := range frames[1:] {
			if !callers[f] {
				t.Fatalf("sample %d: a caller has no name", i)
			}
		}
	}
	// Callees are spread over methods at random: few stacks coincide.
	if len(seen) < count*9/10 {
		t.Errorf("%d stacks, want %d", len(seen), count)
	}
}
