package fold

import (
	"slices"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold/foldtest"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// A frame can be split into method and place, and restored from both.
func TestActivate(t *testing.T) {
	for _, c := range []struct {
		frame  bpf.Frame
		epoch  uint32
		method bpf.Frame // expected method of a return address
		site   uint32
		leaf   bpf.Frame
	}{
		{frame: foldtest.JIT(7, 0x12345), method: foldtest.JIT(7, 0), site: 0x12345, leaf: foldtest.JIT(7, 0)},
		{frame: foldtest.JIT(0xfffffff, 0xffffffff), method: foldtest.JIT(0xfffffff, 0), site: 0xffffffff,
			leaf: foldtest.JIT(0xfffffff, 0)},
		{frame: foldtest.Method('A', 17), epoch: 3, method: foldtest.Method('A', 0), site: 17,
			leaf: foldtest.Method('A', 0)},
		// This frame has no bytecode.
		{frame: foldtest.Method('A', 0xffff), epoch: 3, method: foldtest.Method('A', 0), site: 0xffff,
			leaf: foldtest.Method('A', 0)},
		{frame: foldtest.Method('A', 0), method: foldtest.Method('A', 0), leaf: foldtest.Method('A', 0)},
		{frame: foldtest.Method('!', 5), method: foldtest.Method('!', 5), leaf: bpf.Frame(uint64(bpf.FrameStub) << 60)},
		{frame: foldtest.Method('0', 5), method: foldtest.Method('0', 5),
			leaf: bpf.Frame(uint64(bpf.FrameNative) << 60)},
		{frame: 1<<64 - 1, method: 1<<64 - 1, leaf: 0xf << 60}, // an undefined kind
	} {
		caller := guest.RawFrame{Frame: c.frame, Epoch: c.epoch, Kind: guest.RawReturn}
		a := activate(caller, 40)
		want := activation{Method: guest.RawFrame{Frame: c.method, Epoch: c.epoch, Kind: guest.RawReturn}, Site: c.site,
			Depth: 40}
		if a != want {
			t.Errorf("%v: %+v, want %+v", c.frame, a, want)
		}
		if got := callerFrame(a); got != caller {
			t.Errorf("%v: comes back as %+v", c.frame, got)
		}
		want.Method.Frame, want.Site = c.leaf, 0
		if got := activate(guest.RawFrame{Frame: c.frame, Epoch: c.epoch, Kind: guest.RawExact}, 40); got != want {
			t.Errorf("leaf %v: %+v, want %+v", c.frame, got, want)
		}
		if got := codeOf(guest.RawFrame{Frame: c.frame, Epoch: c.epoch, Kind: guest.RawExact,
			End: bpf.EndHeap}); got != want.Method {
			t.Errorf("code of leaf %v: %+v, want %+v", c.frame, got, want.Method)
		}
	}
	// The kernel side does not know the epochs of a map of compiled code, for native frames.
	if a := activate(guest.RawFrame{Frame: foldtest.Method('0', 5), Epoch: 9}, 40); a.Method.Epoch != 0 {
		t.Errorf("epoch of a native frame: %+v", a)
	}
}

func TestActivations(t *testing.T) {
	sample := func(text string, end bpf.WalkEnd) ([]guest.RawFrame, []uint32) {
		user, depths := foldtest.Frames(text)
		return guest.AppendStack(nil, &bpf.Sample{User: user, End: end, Attachment: 1}, 1), depths
	}
	user, depths := sample("a:1@16 B:2@32 c:3@48", bpf.EndRoot)
	walk, ok := activations(nil, user, depths)
	if !ok || len(walk) != 3 {
		t.Fatalf("%+v, %t", walk, ok)
	}
	if got := callers(user[:1:1], walk[1:]); !slices.Equal(got, user) {
		t.Errorf("%s, want %s", foldtest.Path(got), foldtest.Path(user))
	}
	if l := linkOf(walk); l.Leaf != walk[0] || l.Caller != walk[1] || l.Leaf.Depth != 48 || l.Caller.Depth != 32 {
		t.Errorf("link %+v of %+v", l, walk)
	}

	// If a walk ended early, a marker stands for the rest, and preserves the reason.
	for _, text := range []string{"a:1@16 B:2@32 c:3@48", "c:3@48"} {
		user, depths = sample(text, bpf.EndPointer)
		walk, ok = activations(nil, user, depths)
		if !ok || len(walk) != len(user)+1 || !isUnreached(walk[len(user)].Method) {
			t.Fatalf("%s: %+v, %t", text, walk, ok)
		}
		leaf := user[0]
		leaf.End = 0
		if got := callers([]guest.RawFrame{leaf}, walk[1:]); !slices.Equal(got, user) {
			t.Errorf("%s, want %s", foldtest.Path(got), foldtest.Path(user))
		}
		if l := linkOf(walk); len(user) == 1 && l.Caller != (activation{}) {
			t.Errorf("a caller that was not reached is in the link: %+v", l)
		}
	}

	// Missing depths count as unknown.
	if walk, ok = activations(nil, user, nil); !ok || walk[0].Depth != 0 {
		t.Errorf("%+v, %t", walk, ok)
	}
	// Nothing is learned from frames of another VM, nor from an empty stack.
	for _, user := range [][]guest.RawFrame{{{Kind: guest.RawStale}}, {user[0], {Kind: guest.RawStale}},
		{{Kind: guest.RawNothing, End: bpf.EndRead}}, nil} {
		if _, ok = activations(nil, user, depths); ok {
			t.Errorf("%s may be learned", foldtest.Path(user))
		}
	}
}
