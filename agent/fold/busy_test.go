package fold

import (
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/fold/foldtest"
	"github.com/vmprof-agent/vmprof-agent/agent/target"
	"github.com/vmprof-agent/vmprof-agent/agent/target/targettest"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

func TestTopEdge(t *testing.T) {
	var (
		leaf   = target.RawFrame{Frame: foldtest.JIT(7, 0x10), Kind: target.RawExact}
		caller = target.RawFrame{Frame: foldtest.JIT(8, 0x20), Kind: target.RawReturn}
		root   = target.RawFrame{Frame: foldtest.JIT(9, 0x30), Kind: target.RawReturn}
		kernel = target.RawFrame{Frame: 0xffffffff81000000, Kind: target.RawKernel}
		native = target.RawFrame{Frame: foldtest.Method('1', 0), Kind: target.RawExact}
		stub   = target.RawFrame{Frame: bpf.Frame(uint64(bpf.FrameStub) << 60), Kind: target.RawExact}
	)
	cut := caller
	cut.End = bpf.EndRead
	for _, tt := range []struct {
		name  string
		stack []target.RawFrame
		want  TopEdge
		ok    bool
	}{
		{"compiled code", []target.RawFrame{leaf, caller, root}, TopEdge{leaf, caller}, true},
		{"interrupted by the kernel", []target.RawFrame{kernel, kernel, leaf, caller, root}, TopEdge{leaf, caller}, true},
		{"the outermost frame", []target.RawFrame{leaf}, TopEdge{At: leaf}, true},
		{"a walk that ended early", []target.RawFrame{leaf, cut}, TopEdge{leaf, caller}, true},
		{"the VM called by compiled code", []target.RawFrame{native, caller, root}, TopEdge{}, false},
		{"a stub", []target.RawFrame{stub, caller, root}, TopEdge{}, false},
		{"code of a VM that is gone", []target.RawFrame{{Kind: target.RawStale}, caller}, TopEdge{}, false},
		{"only the kernel", []target.RawFrame{kernel}, TopEdge{}, false},
		{"nothing", nil, TopEdge{}, false},
	} {
		if got, ok := topOf(tt.stack); got != tt.want || ok != tt.ok {
			t.Errorf("%s: %v, %t, want %v, %t", tt.name, got, ok, tt.want, tt.ok)
		}
	}
}

// A tree and the stacks that it was built from have the same edges.
func TestTopEdgesOfTree(t *testing.T) {
	kernel := target.RawFrame{Frame: 1, Kind: target.RawKernel}
	a, b := target.RawFrame{Frame: foldtest.JIT(1, 4), Kind: target.RawExact}, target.RawFrame{Frame: foldtest.JIT(2, 4), Kind: target.RawExact}
	c, d := target.RawFrame{Frame: foldtest.JIT(3, 4), Kind: target.RawReturn}, target.RawFrame{Frame: foldtest.JIT(4, 4), Kind: target.RawReturn}
	var tree Tree
	var want, got TopEdges
	for i, stack := range [][]target.RawFrame{{a, c, d}, {a, d}, {b, c, d}, {kernel, b, c, d}, {{Frame: foldtest.Method('1', 0), Kind: target.RawExact}, c}} {
		tree.Add(stack, uint64(i+1))
		want.Add(stack, float64(i+1))
	}
	got.AddTree(&tree)
	if got.All != want.All || len(got.Edges) != len(want.Edges) || len(want.Edges) != 3 {
		t.Fatalf("%v, want %v", got, want)
	}
	for e, n := range want.Edges {
		if got.Edges[e] != n {
			t.Errorf("%v: %v, want %v", e, got.Edges[e], n)
		}
	}
	if n := got.Below[TopEdge{c, d}]; n != 8 || len(got.Below) != 1 {
		t.Errorf("calls below the top: %v", got.Below)
	}
	if hot := got.Hottest(1); len(hot) != 1 || hot[0].Frame.CompileID() != 2 || hot[0].samples != 7 {
		t.Errorf("hottest: %v", hot)
	}
	got.Fade(0.5)
	if got.All != want.All/2 || got.Edges[TopEdge{b, c}] != 3.5 {
		t.Errorf("faded to %v", got)
	}
	for range 10 {
		got.Fade(0.5)
	}
	if len(got.Edges) != 0 {
		t.Errorf("%v is left of what was long ago", got.Edges)
	}
}

func TestHotAddresses(t *testing.T) {
	code := &target.JITCode{Low: targettest.CodeAt, High: targettest.CodeAt + 0x1000}
	kernel := target.RawFrame{Frame: 0xffffffff81000000, Kind: target.RawKernel}
	at := func(offset uint64, kind target.RawKind) target.RawFrame {
		return target.RawFrame{Frame: targettest.NativeAt(targettest.CodeAt + offset), Kind: kind}
	}
	var h HotAddresses
	for _, stack := range [][]target.RawFrame{
		{at(0, target.RawExact), at(0x40, target.RawReturn)}, {kernel, at(0, target.RawExact)}, {at(0x80, target.RawExact)},
		{{Frame: targettest.NativeAt(0x7f0000001000), Kind: target.RawExact}, at(0x80, target.RawReturn)}, // a library that the code called
		{kernel}, nil,
	} {
		h.Add(stack, code)
		h.Add(stack, nil)
	}
	if h.All != 6 || len(h.Samples) != 2 || h.Samples[targettest.CodeAt] != 2 || h.Samples[targettest.CodeAt+0x80] != 1 {
		t.Errorf("%+v", h)
	}
	h.Fade(0.5)
	if h.All != 3 || h.Samples[targettest.CodeAt] != 1 {
		t.Errorf("faded to %+v", h)
	}
	for range 10 {
		h.Fade(0.5)
	}
	if len(h.Samples) != 0 {
		t.Errorf("%v is left of what was long ago", h.Samples)
	}
}
