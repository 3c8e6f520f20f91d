package fold

import (
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// Whatever records contain, each folded sample is in a tree once the window is closed.
func FuzzContexts(f *testing.F) {
	walk := record{Identity: java, Attachment: 7, Flags: bpf.SampleDepths, User: "a:1@16 B:2@32 1:3@48"}
	link := record{Identity: java, Attachment: 7, Flags: bpf.SampleDepths | bpf.SampleLink, End: bpf.EndKnown,
		User: "B:2@32 1:4@48", Kernel: []uint64{1 << 63}}
	part := record{Identity: java, Attachment: 7, End: bpf.EndKnown, User: "B:2 1:4",
		Shared: &bpf.SharedStack{Serial: 2, Base: 1, Frames: 1, Own: 2}}
	for i, r := range []record{
		walk, link, part,
		{Identity: java, Attachment: 7, Flags: bpf.SampleDepths | bpf.SampleDrawn, User: "a:1@16 B:2@32 1:3@48",
			End: bpf.EndPointer},
		{Identity: java, Attachment: 6, Flags: bpf.SampleDepths | bpf.SampleLink, User: "a:1@16 B:2@32"},
		{Identity: java, Flags: bpf.SampleDepths | bpf.SampleLink, End: bpf.EndKnown, User: "B:2@32"},
		{Identity: java, Flags: bpf.SampleDepths | bpf.SampleLink, End: bpf.EndHeap},
		{Identity: java, Flags: bpf.SampleDepths | bpf.SampleLink, Kernel: []uint64{1 << 63}},
		{Identity: java, Flags: bpf.SampleLink, User: "a:1@16 B:2@32"},
		{Identity: java, Attachment: 7, User: "a:1 B:2 1:4", Shared: &bpf.SharedStack{Serial: 1, Own: 3}},
		{Identity: java, Attachment: 7, User: "a:1 B:2 1:4", Shared: &bpf.SharedStack{Serial: 2, Base: 1, Frames: 3,
			Own: 0}},
	} {
		f.Add(r.Encode(), uint8(i), i%2 == 0)
	}
	f.Fuzz(func(t *testing.T, raw []byte, mode uint8, check bool) {
		a, w := newContextState(t, JoinOptions{Contexts: profile.ContextMode(mode % 3), Check: check})
		p := a.attach(7)
		part := part
		if check {
			part.User = "a:1 B:2 1:4"
		}
		for _, r := range [][]byte{
			raw, walk.Encode(), raw, link.Encode(), raw, part.Encode(), raw,
		} {
			a.fold(r)
		}
		if a.state().Samples != a.state().Folded+profile.Sum(a.state().Discarded) || w.Received != w.Folded+
			profile.Sum(w.Discarded) {
			t.Errorf("received %d, folded %d, discarded %v", a.state().Samples, a.state().Folded, a.state().Discarded)
		}
		a.placed(w)
		for q, threads := range w.Processes {
			c := a.owner.Contexts(q, threads, a.opt.Contexts, a.opt.Check)
			if c == nil || q != p {
				continue
			}
			if c.Ambiguous+c.Fitted+c.Unplaced > c.Linked || c.Check != nil && c.Check.Samples > c.Linked {
				t.Errorf("%+v, %+v", c, c.Check)
			}
			for i := range c.ByDepth {
				if all := c.Walked + c.Linked; c.ByDepth[i] > all || c.BySite[i] > all {
					t.Errorf("%+v", c)
				}
			}
		}
	})
}
