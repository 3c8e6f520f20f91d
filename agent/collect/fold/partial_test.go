package fold

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold/foldtest"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// Whaley's example of recursion (Java Grande 2000): frames that were already on the stack are not
// entered again.
func TestPartialCountsEntries(t *testing.T) {
	a, w := newContextState(t, JoinOptions{Contexts: profile.ContextPartial})
	p := a.attach(7)
	for i, s := range []struct {
		user         string
		base, frames uint32
	}{
		{"a:1 b:1 a:1 b:1 c:1", 0, 0}, // a b a b c
		{"a:1 b:1 a:2", 1, 0},         // a b a: returned twice
		{"b:1 a:1 b:1 c:1", 2, 1},     // and b c again
		{"a:1 b:2 d:1", 3, 0},         // called by the outer b
	} {
		end, base := bpf.EndKnown, uint32(0)
		if s.base == 0 || s.frames == 0 {
			end = bpf.EndRoot
		} else {
			base = s.base
		}
		n, _ := foldtest.Frames(s.user)
		a.feed(record{Identity: java, Attachment: 7, User: s.user, End: end, Shared: &bpf.SharedStack{
			Serial: uint32(i + 1), Base: base, Frames: s.frames, Own: uint32(len(n)),
		}})
	}
	// The same in a system call, with all frames shared but two.
	a.feed(record{Identity: java, Attachment: 7, User: "b:2 d:1", End: bpf.EndKnown,
		Kernel: []uint64{0xffffffff81000001},
		Shared: &bpf.SharedStack{Serial: 5, Base: 4, Frames: 1, Own: 2}})
	tree := &w.Processes[p][ThreadKey(java.PID)].Trees[profile.Certain]
	want := map[string]uint64{
		"a:1": 1, "a:1 b:1": 1, "a:1 b:1 a:1": 1, "a:1 b:1 a:1 b:1": 2, "a:1 b:1 a:1 b:1 c:1": 2, "a:1 b:2 d:1": 1,
		"a:1 b:2 d:1 kernel": 1,
	}
	if got := enteredOf(tree); !maps.Equal(got, want) {
		t.Errorf("entered %v, want %v", got, want)
	}
	if got, want := contextsOf(tree), (map[string]uint64{
		"a:1 b:1 a:1 b:1 c:1": 2, "a:1 b:1 a:2": 1, "a:1 b:2 d:1": 1, "a:1 b:2 d:1 kernel": 1,
	}); !maps.Equal(got, want) {
		t.Errorf("contexts %v, want %v", got, want)
	}
	a.placed(w)
	if got := a.owner.Contexts(p, w.Processes[p], a.opt.Contexts, a.opt.Check); got.Walked != 3 || got.Linked != 2 ||
		got.Unplaced != 0 || got.Check != nil || got.Nodes != 0 {
		t.Errorf("%+v", *got)
	}
}

// Samples that build on a lost sample are not placed.
func TestPartialUnplaced(t *testing.T) {
	a, w := newContextState(t, JoinOptions{Contexts: profile.ContextPartial})
	p := a.attach(7)
	feed := func(user string, h bpf.SharedStack, kernel ...uint64) {
		n, _ := foldtest.Frames(user)
		h.Own = uint32(len(n))
		end := bpf.EndKnown
		if h.Base == 0 {
			end = bpf.EndRoot
		}
		a.feed(record{Identity: java, Attachment: 7, User: user, End: end, Kernel: kernel, Shared: &h})
	}
	feed("a:1 b:2 c:3", bpf.SharedStack{Serial: 1})
	feed("c:3 d:4", bpf.SharedStack{Serial: 3, Base: 2, Frames: 2}, 0xffffffff81000001)
	feed("b:2 c:5", bpf.SharedStack{Serial: 4, Base: 3, Frames: 1})
	feed("a:1 b:2 c:3", bpf.SharedStack{Serial: 5})
	feed("b:2 c:3", bpf.SharedStack{Serial: 6, Base: 5, Frames: 1})
	want := map[string]uint64{
		"certain: a:1 b:2 c:3": 3, "unplaced: [known from before] c:3 d:4 kernel": 1,
		"unplaced: [known from before] b:2 c:5": 1,
	}
	if got := a.placed(w); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := a.owner.Contexts(p, w.Processes[p], a.opt.Contexts, a.opt.Check); got.Walked != 2 || got.Linked != 3 ||
		got.Unplaced != 2 {
		t.Errorf("%+v", *got)
	}
}

// If contexts are checked, the whole stack is in the sample, but only the frames marked as its own
// are used.
func TestPartialChecked(t *testing.T) {
	a, w := newContextState(t, JoinOptions{Contexts: profile.ContextPartial, Check: true})
	p := a.attach(7)
	for _, s := range []struct {
		user   string
		shared bpf.SharedStack
	}{
		{"a:1 b:1 c:1 d:1 e:1", bpf.SharedStack{Serial: 1, Own: 5}},
		{"a:1 b:1 c:1 d:1 e:2", bpf.SharedStack{Serial: 2, Base: 1, Frames: 3, Own: 2}}, // right
		{"x:1 b:1 c:1 d:1 e:3", bpf.SharedStack{Serial: 3, Base: 2, Frames: 3, Own: 2}}, // the outermost frame is wrong
		{"a:1 b:2 c:1 d:1 e:4", bpf.SharedStack{Serial: 4, Base: 3, Frames: 3, Own: 2}}, // the third is wrong, too
		{"a:1 b:1 c:2 d:1 e:5", bpf.SharedStack{Serial: 5, Base: 4, Frames: 3, Own: 2}}, // the second is wrong
		{"z:1 a:1 b:1 c:1 d:1 e:6", bpf.SharedStack{Serial: 6, Base: 5, Frames: 3, Own: 2}},
		{"a:1 b:1 c:1 d:1 e:7", bpf.SharedStack{Serial: 8, Base: 7, Frames: 3, Own: 2}}, // lost
	} {
		a.feed(record{Identity: java, Attachment: 7, User: s.user, Shared: &s.shared})
	}
	want := map[string]uint64{"certain: a:1 b:1 c:1 d:1 e:1": 1, "unplaced: [known from before] d:1 e:7": 1}
	for i := 2; i <= 6; i++ {
		want[fmt.Sprintf("certain: a:1 b:1 c:1 d:1 e:%d", i)] = 1
	}
	if got := a.placed(w); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	got := a.owner.Contexts(p, w.Processes[p], a.opt.Contexts, a.opt.Check)
	if *got.Check != (profile.ContextCheck{Samples: 6, Right: [3]uint64{6, 3, 1}}) {
		t.Errorf("%+v, want one level of 6 right, three of 3, all of 1", *got.Check)
	}
}

func TestSameCallersOfFrames(t *testing.T) {
	stack := func(text string) []guest.RawFrame {
		user, _ := foldtest.Frames(text)
		return guest.AppendStack(nil, &bpf.Sample{User: user, Attachment: 1, End: bpf.EndRoot}, 1)
	}
	for _, c := range []struct {
		a, b   string
		levels int
		want   bool
	}{
		{"a b c", "a b c", 0, true},
		{"a b c", "x b c", 0, false},
		{"a b c", "x b c", 1, true},
		{"a b c", "x b c", 2, false},
		{"a b c", "z a b c", 2, true},
		{"a b c", "z a b c", 3, false},
		{"c", "c", 1, true},
		{"c", "b c", 1, false},
		{"", "", 3, true},
		{"", "c", 1, false},
	} {
		if sameCallers(stack(c.a), stack(c.b), c.levels, sameFrame) != c.want ||
			sameCallers(stack(c.b), stack(c.a), c.levels, sameFrame) != c.want {
			t.Errorf("%q and %q for %d levels: %t", c.a, c.b, c.levels, !c.want)
		}
	}
	cut := stack("b c")
	cut[1].End = bpf.EndRead
	if !slices.EqualFunc(cut, stack("b c"), sameFrame) {
		t.Error("why a walk ended makes another stack")
	}
}
