package agent

import (
	"testing"

	"github.com/vmprof-agent/vmprof-agent/bpf"
)

func jit(version, offset int) bpf.Frame {
	return bpf.Frame(uint64(bpf.FrameJIT)<<60 | uint64(version)<<32 | uint64(offset))
}

func TestTopEdge(t *testing.T) {
	var (
		leaf   = rawFrame{frame: jit(7, 0x10), kind: rawExact}
		caller = rawFrame{frame: jit(8, 0x20), kind: rawReturn}
		root   = rawFrame{frame: jit(9, 0x30), kind: rawReturn}
		kernel = rawFrame{frame: 0xffffffff81000000, kind: rawKernel}
		native = rawFrame{frame: nativeFrame, kind: rawExact}
		stub   = rawFrame{frame: bpf.Frame(uint64(bpf.FrameStub) << 60), kind: rawExact}
	)
	cut := caller
	cut.end = bpf.EndRead
	for _, tt := range []struct {
		name  string
		stack []rawFrame
		want  topEdge
		ok    bool
	}{
		{"compiled code", []rawFrame{leaf, caller, root}, topEdge{leaf, caller}, true},
		{"interrupted by the kernel", []rawFrame{kernel, kernel, leaf, caller, root}, topEdge{leaf, caller}, true},
		{"the outermost frame", []rawFrame{leaf}, topEdge{at: leaf}, true},
		{"a walk that ended early", []rawFrame{leaf, cut}, topEdge{leaf, caller}, true},
		{"the VM called by compiled code", []rawFrame{native, caller, root}, topEdge{}, false},
		{"a stub", []rawFrame{stub, caller, root}, topEdge{}, false},
		{"code of a VM that is gone", []rawFrame{{kind: rawStale}, caller}, topEdge{}, false},
		{"only the kernel", []rawFrame{kernel}, topEdge{}, false},
		{"nothing", nil, topEdge{}, false},
	} {
		if got, ok := topOf(tt.stack); got != tt.want || ok != tt.ok {
			t.Errorf("%s: %v, %t, want %v, %t", tt.name, got, ok, tt.want, tt.ok)
		}
	}
}

// A tree and the stacks that it was made of have the same edges.
func TestTopEdgesOfTree(t *testing.T) {
	kernel := rawFrame{frame: 1, kind: rawKernel}
	a, b := rawFrame{frame: jit(1, 4), kind: rawExact}, rawFrame{frame: jit(2, 4), kind: rawExact}
	c, d := rawFrame{frame: jit(3, 4), kind: rawReturn}, rawFrame{frame: jit(4, 4), kind: rawReturn}
	var tree rawTree
	var want, got topEdges
	for i, stack := range [][]rawFrame{{a, c, d}, {a, d}, {b, c, d}, {kernel, b, c, d}, {{frame: nativeFrame, kind: rawExact}, c}} {
		tree.Add(stack, uint64(i+1))
		want.add(stack, float64(i+1))
	}
	got.addTree(&tree)
	if got.all != want.all || len(got.edges) != len(want.edges) || len(want.edges) != 3 {
		t.Fatalf("%v, want %v", got, want)
	}
	for e, n := range want.edges {
		if got.edges[e] != n {
			t.Errorf("%v: %v, want %v", e, got.edges[e], n)
		}
	}
	if hot := got.hottest(1); len(hot) != 1 || hot[0].frame.CompileID() != 2 || hot[0].samples != 7 {
		t.Errorf("hottest: %v", hot)
	}
	got.fade(0.5)
	if got.all != want.all/2 || got.edges[topEdge{b, c}] != 3.5 {
		t.Errorf("faded to %v", got)
	}
	for range 10 {
		got.fade(0.5)
	}
	if len(got.edges) != 0 {
		t.Errorf("%v is left of what was long ago", got.edges)
	}
}
