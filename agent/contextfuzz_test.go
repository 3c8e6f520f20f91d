package agent

import (
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// Whatever a record says, each sample that is folded is in a tree once the window is closed.
func FuzzContexts(f *testing.F) {
	walk := record{identity: java, attachment: 7, flags: bpf.SampleDepths, user: "a:1@16 B:2@32 1:3@48"}
	link := record{identity: java, attachment: 7, flags: bpf.SampleDepths | bpf.SampleLink, end: bpf.EndKnown, user: "B:2@32 1:4@48", kernel: []uint64{1 << 63}}
	part := record{identity: java, attachment: 7, end: bpf.EndKnown, user: "B:2 1:4", shared: &bpf.SharedStack{Serial: 2, Base: 1, Frames: 1, Own: 2}}
	for i, r := range []record{
		walk, link, part,
		{identity: java, attachment: 7, flags: bpf.SampleDepths | bpf.SampleDrawn, user: "a:1@16 B:2@32 1:3@48", end: bpf.EndPointer},
		{identity: java, attachment: 6, flags: bpf.SampleDepths | bpf.SampleLink, user: "a:1@16 B:2@32"},
		{identity: java, flags: bpf.SampleDepths | bpf.SampleLink, end: bpf.EndKnown, user: "B:2@32"},
		{identity: java, flags: bpf.SampleDepths | bpf.SampleLink, end: bpf.EndHeap},
		{identity: java, flags: bpf.SampleDepths | bpf.SampleLink, kernel: []uint64{1 << 63}},
		{identity: java, flags: bpf.SampleLink, user: "a:1@16 B:2@32"},
		{identity: java, attachment: 7, user: "a:1 B:2 1:4", shared: &bpf.SharedStack{Serial: 1, Own: 3}},
		{identity: java, attachment: 7, user: "a:1 B:2 1:4", shared: &bpf.SharedStack{Serial: 2, Base: 1, Frames: 3, Own: 0}},
	} {
		f.Add(r.encode(), uint8(i), i%2 == 0)
	}
	f.Fuzz(func(t *testing.T, raw []byte, mode uint8, check bool) {
		a, w := newContextAgent(t, Options{Contexts: profile.ContextMode(mode % 3), CheckContexts: check})
		p := a.attach(7)
		part := part
		if check {
			part.user = "a:1 B:2 1:4"
		}
		for _, r := range [][]byte{
			raw, walk.encode(), raw, link.encode(), raw, part.encode(), raw,
		} {
			a.mu.Lock()
			a.handle(r)
			a.mu.Unlock()
		}
		if a.received.samples != a.received.folded+profile.Sum(a.discarded) || w.received != w.folded+profile.Sum(w.discarded) {
			t.Errorf("received %d, folded %d, discarded %v", a.received.samples, a.received.folded, a.discarded)
		}
		a.placed(w)
		for q, threads := range w.processes {
			c := a.contextsOf(q, threads)
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
