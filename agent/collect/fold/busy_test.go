package fold

import (
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold/foldtest"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/guest/guesttest"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

func TestTopEdge(t *testing.T) {
	var (
		leaf   = guest.RawFrame{Frame: foldtest.JIT(7, 0x10), Kind: guest.RawExact}
		caller = guest.RawFrame{Frame: foldtest.JIT(8, 0x20), Kind: guest.RawReturn}
		root   = guest.RawFrame{Frame: foldtest.JIT(9, 0x30), Kind: guest.RawReturn}
		kernel = guest.RawFrame{Frame: 0xffffffff81000000, Kind: guest.RawKernel}
		native = guest.RawFrame{Frame: foldtest.Method('1', 0), Kind: guest.RawExact}
		stub   = guest.RawFrame{Frame: bpf.Frame(uint64(bpf.FrameStub) << 60), Kind: guest.RawExact}
	)
	cut := caller
	cut.End = bpf.EndRead
	for _, tt := range []struct {
		name  string
		stack []guest.RawFrame
		want  TopEdge
		ok    bool
	}{
		{"compiled code", []guest.RawFrame{leaf, caller, root}, TopEdge{leaf, caller}, true},
		{"interrupted by the kernel", []guest.RawFrame{kernel, kernel, leaf, caller, root}, TopEdge{leaf, caller},
			true},
		{"the outermost frame", []guest.RawFrame{leaf}, TopEdge{At: leaf}, true},
		{"a walk that ended early", []guest.RawFrame{leaf, cut}, TopEdge{leaf, caller}, true},
		{"the VM called by compiled code", []guest.RawFrame{native, caller, root}, TopEdge{}, false},
		{"a stub", []guest.RawFrame{stub, caller, root}, TopEdge{}, false},
		{"code of a VM that is gone", []guest.RawFrame{{Kind: guest.RawStale}, caller}, TopEdge{}, false},
		{"only the kernel", []guest.RawFrame{kernel}, TopEdge{}, false},
		{"nothing", nil, TopEdge{}, false},
	} {
		if got, ok := topOf(tt.stack); got != tt.want || ok != tt.ok {
			t.Errorf("%s: %v, %t, want %v, %t", tt.name, got, ok, tt.want, tt.ok)
		}
	}
}

// A tree and the stacks that it was built from have the same edges.
func TestTopEdgesOfTree(t *testing.T) {
	kernel := guest.RawFrame{Frame: 1, Kind: guest.RawKernel}
	a, b := guest.RawFrame{Frame: foldtest.JIT(1, 4), Kind: guest.RawExact},
		guest.RawFrame{Frame: foldtest.JIT(2, 4), Kind: guest.RawExact}
	c, d := guest.RawFrame{Frame: foldtest.JIT(3, 4), Kind: guest.RawReturn},
		guest.RawFrame{Frame: foldtest.JIT(4, 4), Kind: guest.RawReturn}
	var tree Tree
	var want, got TopEdges
	for i, stack := range [][]guest.RawFrame{{a, c, d}, {a, d}, {b, c, d}, {kernel, b, c, d},
		{{Frame: foldtest.Method('1', 0), Kind: guest.RawExact}, c}} {
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
	code := &guest.JITCode{Low: guesttest.CodeAt, High: guesttest.CodeAt + 0x1000}
	kernel := guest.RawFrame{Frame: 0xffffffff81000000, Kind: guest.RawKernel}
	at := func(offset uint64, kind guest.RawKind) guest.RawFrame {
		return guest.RawFrame{Frame: guesttest.NativeAt(guesttest.CodeAt + offset), Kind: kind}
	}
	var h HotAddresses
	for _, stack := range [][]guest.RawFrame{
		{at(0, guest.RawExact), at(0x40, guest.RawReturn)}, {kernel, at(0, guest.RawExact)}, {at(0x80, guest.RawExact)},
		// The code called a library here.
		{{Frame: guesttest.NativeAt(0x7f0000001000), Kind: guest.RawExact}, at(0x80, guest.RawReturn)},
		{kernel}, nil,
	} {
		h.Add(stack, code)
		h.Add(stack, nil)
	}
	if h.All != 6 || len(h.Samples) != 2 || h.Samples[guesttest.CodeAt] != 2 || h.Samples[guesttest.CodeAt+0x80] != 1 {
		t.Errorf("%+v", h)
	}
	h.Fade(0.5)
	if h.All != 3 || h.Samples[guesttest.CodeAt] != 1 {
		t.Errorf("faded to %+v", h)
	}
	for range 10 {
		h.Fade(0.5)
	}
	if len(h.Samples) != 0 {
		t.Errorf("%v is left of what was long ago", h.Samples)
	}
}
