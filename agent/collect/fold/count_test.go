package fold

import (
	"fmt"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold/foldtest"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

func TestSameCallers(t *testing.T) {
	for _, c := range []struct {
		a, b                   string
		one, three, all, whole bool
	}{
		{"a b c d e", "a b c d e", true, true, true, true},
		{"a b c d e", "a b c d f", true, true, true, true}, // whatever the leaf is
		{"a b c d e", "x b c d e", true, true, false, false},
		{"a b c d e", "a x c d e", true, false, false, false},
		{"a b c d e", "a b c x e", false, false, false, false},
		{"a b c d:1 e", "a b c d:2 e", false, false, false, false},
		{"b c d e", "a b c d e", true, true, false, false},
		{"c d e", "b c d e", true, false, false, false},
		{"e", "d e", false, false, false, false},
		{"e", "f", true, true, true, true},
		{"d e", "d e", true, true, true, true},
	} {
		stack := func(text string) (s []activation) {
			user, depths := foldtest.Frames(text)
			s, _ = activations(nil, guest.AppendStack(nil, &bpf.Sample{User: user, Attachment: 1, End: bpf.EndRoot}, 1),
				depths)
			return s
		}
		a, b := stack(c.a), stack(c.b)
		for levels, want := range map[int]bool{1: c.one, 3: c.three, 0: c.all, 99: c.whole} {
			if sameCallers(a, b, levels, sameCall) != want || sameCallers(b, a, levels, sameCall) != want {
				t.Errorf("%s and %s for %d levels: %t", c.a, c.b, levels, !want)
			}
		}
	}
}

// Table 1 of a hand-made run. c@48 has two callers at one depth: {method, depth} does not
// distinguish them, but the call site does. Neither distinguishes the callers of b@32.
func TestMeasure(t *testing.T) {
	a, w := newContextState(t, JoinOptions{Contexts: profile.ContextChain})
	p := a.attach(7)
	a.walked("a:1@16 b:2@32 c:3@48", 1)
	a.walked("d:1@16 b:2@32 c:3@48", 1)
	a.walked("a:5@16 e:1@32 c:3@48", 1)
	a.walked("a:5@16 e:1@32 f:1@64 f:2@80 f:3@96", 10) // depths suffice for these
	a.walked("g@8", 20)                                // has no caller
	// These paths differ only in a place, which the paper's nodes do not distinguish.
	a.walked("k:1@8 m:1@16 n@24", 1000)
	a.walked("k:1@8 m:2@16 n@24", 1000)
	for i := range 40 {
		a.linked(fmt.Sprintf("e:1@32 c:%d@48", i+10), 1) // one link, at many places of the leaf
	}
	// This leaf occurs only in links.
	a.linked("e:1@32 x:1@48", 80)
	a.linked("f:2@80 f:1@96", 160) // as walked
	// This caller occurs only in links.
	a.linked("y:1@80 f:1@112", 320)
	// The callers of these are unknown.
	a.feed(record{Identity: java, Attachment: 7, Flags: bpf.SampleDepths, User: "h@8", End: bpf.EndRead})
	// This is a sample of another VM.
	a.feed(record{Identity: java, Attachment: 6, Flags: bpf.SampleDepths, User: "h@8"})
	a.feed(record{Identity: java, Flags: bpf.SampleDepths, Kernel: []uint64{0xffffffff81000001}})
	links := &w.Processes[p][ThreadKey(java.PID)].Links
	if n := links.Len(); n > 3*12 {
		t.Errorf("%d nodes for 12 links", n)
	}
	a.placed(w)
	got := a.owner.Contexts(p, w.Processes[p], a.opt.Contexts, a.opt.Check)
	const toRoot = 10 + 20 + 80 + 160 + 2000
	want := profile.Contexts{
		Mode: profile.ContextChain, Walked: 2036, Linked: 600, Unplaced: 320,
		// The nodes are a a.b a.b.c a.e a.e.c a.e.f a.e.f.f a.e.f.f.f d d.b d.b.c g k k.m k.m.n
		// twice, and h below a marker.
		Nodes:   18,
		Methods: 12,                                      // a to h, k, m, n, and the marker
		Shared:  5,                                       // both of b and all three of c
		ByDepth: [3]uint64{toRoot + 320, toRoot, toRoot}, // c has two callers, and the last link has no other
		BySite:  [3]uint64{toRoot + 320 + 40 + 3, toRoot + 40 + 1, toRoot + 40 + 1},
	}
	if *got != want {
		t.Errorf("got  %+v\nwant %+v", *got, want)
	}
}
