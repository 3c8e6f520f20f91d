package fold

import (
	"fmt"
	"slices"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold/foldtest"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// A splicer feeds a splicing with the samples of one thread.
type splicer struct {
	*splicing
	sample bpf.Sample // without frames
	header bpf.Header
}

func newSplicer() *splicer {
	s := &splicer{splicing: &splicing{}, header: bpf.Header{Pid: 100, Tid: 100, Start: 5, Exec: 1}}
	s.sample = bpf.Sample{Header: &s.header, Attachment: 1}
	return s
}

// splice splices a sample with these frames of its own. It returns the whole stack, and how many of
// its frames are new.
func (s *splicer) splice(user string, end bpf.WalkEnd, shared *bpf.SharedStack) string {
	own, _ := foldtest.Frames(user)
	s.sample.User, s.sample.End, s.sample.Shared = own, end, shared
	if shared != nil && shared.Own == 0 {
		shared.Own = uint32(len(own))
	}
	whole, fresh, ok := s.splicing.splice(&s.sample, guest.AppendStack(nil, &s.sample, 1))
	text := fmt.Sprintf("%s, %d new", foldtest.Path(whole), fresh)
	if !ok {
		text += ", rest lost"
	}
	return text
}

// shared are the numbers of a sample that shares that many frames of another one.
func shared(serial, base, frames uint32) *bpf.SharedStack {
	return &bpf.SharedStack{Serial: serial, Base: base, Frames: frames}
}

func TestSplice(t *testing.T) {
	type sample struct {
		user   string
		end    bpf.WalkEnd
		shared *bpf.SharedStack
		want   string
	}
	const root, known = bpf.EndRoot, bpf.EndKnown
	first := sample{"a:1 b:2 c:3 d:4", root, shared(1, 0, 0), "a:1 b:2 c:3 d:4, 4 new"}
	for _, c := range []struct {
		name    string
		samples []sample
	}{
		{"the same stack", []sample{first, {"b:2 c:3 d:4", known, shared(2, 1, 1), "a:1 b:2 c:3 d:4, 0 new"}}},
		{"another place in the leaf", []sample{first, {"c:3 d:9", known, shared(2, 1, 2), "a:1 b:2 c:3 d:9, 0 new"}}},
		{"the leaf made a call", []sample{first, {"c:3 d:5 e:1", known, shared(2, 1, 2),
			"a:1 b:2 c:3 d:5 e:1, 1 new"}}},
		{"another callee", []sample{first, {"c:3 e:1", known, shared(2, 1, 2), "a:1 b:2 c:3 e:1, 1 new"}}},
		{"from another place", []sample{first, {"c:7 d:4", known, shared(2, 1, 2), "a:1 b:2 c:7 d:4, 1 new"}}},
		{"returned", []sample{first, {"b:8", known, shared(2, 1, 1), "a:1 b:8, 0 new"},
			{"b:9 e:1", known, shared(3, 2, 1), "a:1 b:9 e:1, 1 new"}}},
		{"nothing in common", []sample{first, {"x:1 y:2", root, shared(2, 0, 0), "x:1 y:2, 2 new"}}},
		{"a shorter stack that shares nothing but its method", []sample{first,
			{"a:9", root, shared(2, 0, 0), "a:9, 0 new"}}},
		{"two samples on", []sample{first,
			{"c:3 d:5 e:1", known, shared(2, 1, 2), "a:1 b:2 c:3 d:5 e:1, 1 new"},
			{"e:1 f:1", known, shared(3, 2, 4), "a:1 b:2 c:3 d:5 e:1 f:1, 1 new"},
			{"b:2 c:4", known, shared(4, 3, 1), "a:1 b:2 c:4, 0 new"},
		}},
		{"why the base's walk ended", []sample{
			{"b:2 c:3 d:4", bpf.EndPointer, shared(1, 0, 0), "[no frame pointer] b:2 c:3 d:4, 3 new"},
			{"c:3 d:4", known, shared(2, 1, 1), "[no frame pointer] b:2 c:3 d:4, 0 new"},
			{"b:2 c:4", known, shared(3, 2, 0), "[no frame pointer] b:2 c:4, 0 new"},
			{"c:5", known, shared(4, 3, 1), "[no frame pointer] b:2 c:5, 0 new"},
		}},
		{"a stack that is truncated itself", []sample{first, {"c:3 d:4", bpf.EndRead, shared(2, 0, 0),
			"[stack not readable] c:3 d:4, 2 new"}}},
		{"numbers begin anew", []sample{
			{"a:1 b:2 c:3", root, shared(1<<32-1, 0, 0), "a:1 b:2 c:3, 3 new"},
			{"b:2 c:3", known, shared(1, 1<<32-1, 1), "a:1 b:2 c:3, 0 new"},
			{"b:2 c:3", known, shared(2, 1, 1), "a:1 b:2 c:3, 0 new"},
		}},
		{"one was lost", []sample{first,
			{"c:3 d:4", known, shared(3, 2, 2), "[known from before] c:3 d:4, 2 new, rest lost"},
			// A sample that builds on it: two frames are unknown, and no others may stand in for
			// them.
			{"d:5 e:1", known, shared(4, 3, 3), "[known from before] c:3 d:5 e:1, 2 new, rest lost"},
			{"c:6 d:1", known, shared(5, 4, 2), "[known from before] c:6 d:1, 2 new, rest lost"},
			{"b:2 c:6", known, shared(6, 5, 1), "[known from before] b:2 c:6, 2 new, rest lost"},
			{"b:7 c:6", known, shared(7, 6, 1), "[known from before] b:7 c:6, 2 new, rest lost"},
			{"a:1 b:7 c:6", root, shared(8, 0, 0), "a:1 b:7 c:6, 3 new"},
			{"b:7 c:6", known, shared(9, 8, 1), "a:1 b:7 c:6, 0 new"},
		}},
		{"the first one was lost", []sample{{"c:3 d:4", known, shared(2, 1, 2),
			"[known from before] c:3 d:4, 2 new, rest lost"}}},
		{"more frames than the base has", []sample{first, {"d:4", known, shared(2, 1, 5),
			"[known from before] d:4, 1 new, rest lost"}}},
		// It could not keep its stack. The other thread's stack stays in the slot.
		{"one without numbers", []sample{first,
			{"x:1 y:1", root, nil, "x:1 y:1, 2 new"},
			{"b:2 c:3 d:4", known, shared(2, 1, 1), "a:1 b:2 c:3 d:4, 0 new"},
		}},
		{"no frames", []sample{{"", root, shared(1, 0, 0), ", 0 new"}, {"a:1", root, shared(2, 0, 0), "a:1, 1 new"},
			{"", known, shared(3, 2, 1), "a:1, 0 new"}}},
		{"native code that moved on: nothing tells that it is the same function", []sample{
			{"0:1 1:2 2:3", root, shared(1, 0, 0), "0:1 1:2 2:3, 3 new"},
			// A leaf that was called from the same place counts as the same, however.
			{"1:2 2:9", known, shared(2, 1, 1), "0:1 1:2 2:9, 0 new"},
			{"1:3 2:9", known, shared(3, 2, 1), "0:1 1:3 2:9, 2 new"},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSplicer()
			for i, sample := range c.samples {
				h := sample.shared
				if h != nil {
					clone := *h
					h = &clone
				}
				if got := s.splice(sample.user, sample.end, h); got != sample.want {
					t.Errorf("sample %d: %s, want %s", i+1, got, sample.want)
				}
			}
		})
	}
}

// The owner of a kept stack is identified by thread and process.
func TestSpliceOthersStacks(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*bpf.Header)
	}{
		{"another thread in the same place", func(h *bpf.Header) { h.Tid += keptStacks }},
		{"a process that has the pid after another", func(h *bpf.Header) { h.Start++ }},
		{"after an exec", func(h *bpf.Header) { h.Exec++ }},
	} {
		s := newSplicer()
		s.splice("a:1 b:2 c:3", bpf.EndRoot, shared(1, 0, 0))
		c.change(&s.header)
		if got, want := s.splice("c:3", bpf.EndKnown, shared(2, 1,
			2)), "[known from before] c:3, 1 new, rest lost"; got != want {
			t.Errorf("%s: %s, want %s", c.name, got, want)
		}
		s = newSplicer()
		s.splice("a:1 b:2 c:3", bpf.EndRoot, shared(1, 0, 0))
		c.change(&s.header)
		if got, want := s.splice("a:1 b:2 c:3", bpf.EndRoot, shared(2, 0, 0)), "a:1 b:2 c:3, 3 new"; got != want {
			t.Errorf("%s: %s, want %s", c.name, got, want)
		}
	}
	// A thread with a slot of its own keeps it.
	s := newSplicer()
	s.splice("a:1 b:2 c:3", bpf.EndRoot, shared(1, 0, 0))
	s.header.Tid++
	s.splice("x:1 y:2 z:3", bpf.EndRoot, shared(1, 0, 0))
	s.header.Tid--
	if got, want := s.splice("b:2 c:3", bpf.EndKnown, shared(2, 1, 1)), "a:1 b:2 c:3, 0 new"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Frames of methods on the stack stay valid after classes were unloaded: those of the base get the
// sample's epoch.
func TestSpliceAfterUnloading(t *testing.T) {
	s := newSplicer()
	s.splice("A:1 B:2 c:3", bpf.EndRoot, shared(1, 0, 0))
	s.sample.ClassEpoch = 4
	if got, want := s.splice("B:2 c:3", bpf.EndKnown, shared(2, 1, 1)), "A:1 B:2 c:3, 0 new"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, r := range s.kept[100].user {
		if want := map[bpf.FrameKind]uint32{bpf.FrameInterpreted: 4}[r.Frame.Kind()]; r.Epoch != want {
			t.Errorf("%s has epoch %d, want %d", foldtest.Path([]guest.RawFrame{r}), r.Epoch, want)
		}
	}
	s.sample.ClassEpoch = 5
	if got, want := s.splice("B:7", bpf.EndKnown, shared(3, 2, 1)), "A:1 B:7, 0 new"; got != want { // as B continues
		t.Errorf("%s, want %s", got, want)
	}
	s.sample.ClassEpoch = 6
	if got, want := s.splice("B:8", bpf.EndKnown, shared(4, 3, 1)), "A:1 B:8, 0 new"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	walked := guest.AppendStack(nil, &bpf.Sample{User: s.sample.User, Attachment: 1, ClassEpoch: 7, End: bpf.EndRoot},
		1)
	if !slices.EqualFunc(walked, guest.AppendStack(nil, &s.sample, 1), sameFrame) {
		t.Error("the same stack an epoch later is another one")
	}
}
