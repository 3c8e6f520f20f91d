package fold

import (
	"fmt"
	"maps"
	"testing"
	"unsafe"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold/foldtest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// stop marks a record as taken while the VM had stopped its Java threads.
func stop(raw []byte) []byte {
	raw[unsafe.Offsetof(bpf.Header{}.Stopped)] = 1
	return raw
}

// Samples of a thread while its VM had stopped its Java threads form a thread of their own, in each
// mode of contexts.
func TestStoppedThreads(t *testing.T) {
	for name, mode := range map[string]profile.ContextMode{"walk": profile.ContextWalk, "chain": profile.ContextChain} {
		t.Run(name, func(t *testing.T) {
			a, w := newContextState(t, JoinOptions{Contexts: mode})
			p := a.attach(7)
			r := record{Identity: java, Attachment: 7, User: "d:1@16 c:2@32 b:3@48 a:4@64"}
			if mode == profile.ContextChain {
				r.Flags = bpf.SampleDepths
				a.state().Joiner().Chaining(p).WalkRate.Proof = 0
			}
			feed := func(r record, stopped bool, times int) {
				for range times {
					raw := r.Encode()
					if stopped {
						stop(raw)
					}
					a.fold(raw)
				}
			}
			other := r
			other.TID = 200
			feed(r, false, 20)
			feed(r, true, 3)
			feed(other, true, 2)
			if mode == profile.ContextChain {
				link := r
				link.Flags, link.End, link.User = bpf.SampleDepths|bpf.SampleLink, bpf.EndKnown, "b:3@48 a:4@64"
				feed(link, true, 4)
				feed(link, false, 5)
				a.place(w)
			} else {
				feed(r, true, 4)
				feed(r, false, 5)
			}
			foldtest.NameFrames(p.Process, r.User)
			var c profile.Counts
			c.Truncated = map[string]uint64{}
			got := map[string]uint64{}
			for _, thread := range p.Profile(w.Processes[p], &c).Threads {
				if thread.Tree.Total() > 0 {
					got[fmt.Sprint(thread.TID, " ", thread.Stopped, " ", thread.Name)] += thread.Tree.Total()
				}
			}
			want := map[string]uint64{"100 false thread": 25, "100 true thread": 7, "200 true thread": 2}
			if !maps.Equal(got, want) {
				t.Errorf("threads %v, want %v", got, want)
			}
			if w.Folded != 34 {
				t.Errorf("%d samples folded, want 34", w.Folded)
			}
		})
	}
}

func TestThreadKey(t *testing.T) {
	for _, tid := range []uint32{0, 1, 4 << 20} { // the kernel's bound
		for nth := range maxThreadNames {
			for _, stopped := range []bool{false, true} {
				if k := keyOf(tid, nth, stopped); k.TID() != int(tid) || k.nth() != nth || k.Stopped() != stopped {
					t.Errorf("%d, %d, %v is %d, %d, %v", tid, nth, stopped, k.TID(), k.nth(), k.Stopped())
				}
			}
		}
	}
}
