package fold

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold/foldtest"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

func TestDivide(t *testing.T) {
	for _, c := range []struct {
		shares []float64
		weight uint64
		want   []uint64
	}{
		{[]float64{1}, 7, []uint64{7}},
		{[]float64{0.75, 0.25}, 8, []uint64{6, 2}},
		{[]float64{0.5, 0.5}, 1, []uint64{1, 0}},
		{[]float64{0.5, 0.3, 0.2}, 4, []uint64{2, 1, 1}},
		{[]float64{1. / 3, 1. / 3, 1. / 3}, 1 << 40, []uint64{1<<40/3 + 1, 1 << 40 / 3, 1 << 40 / 3}},
		{[]float64{1, 0}, 3, []uint64{3, 0}},
		{[]float64{0.5, 0.5}, 0, []uint64{0, 0}},
		{[]float64{0.5, 0.5}, math.MaxUint64, nil},
		{[]float64{0.999999, 0.999999}, 1000, nil}, // these do not sum to 1
		{[]float64{0.1, 0.1}, 1000, nil},
	} {
		places := make([]place, len(c.shares))
		for i, s := range c.shares {
			places[i].share = s
		}
		parts := divide(c.weight, places)
		var sum uint64
		for _, n := range parts {
			sum += n
		}
		if c.want != nil && !slices.Equal(parts, c.want) || sum != c.weight {
			t.Errorf("%d by %v: %v, want %v", c.weight, c.shares, parts, c.want)
		}
	}
	// After any number of weights no place is owed more than rounding: less than one for each other
	// place.
	places := []place{{share: 0.6}, {share: 0.3}, {share: 0.08}, {share: 0.02}}
	given := make([]uint64, len(places))
	var total uint64
	for i := range uint64(1000) {
		weight := i*i%3 + i/500
		total += weight
		var sum uint64
		for j, n := range divide(weight, places) {
			given[j] += n
			sum += n
		}
		if sum != weight {
			t.Fatalf("weight %d: parts sum to %d", weight, sum)
		}
		for j, p := range places {
			if owed := p.share*float64(total) - float64(given[j]); math.Abs(owed) >= float64(len(places)) ||
				math.Abs(owed-p.owed) > 1e-6 {
				t.Fatalf("after %d: place %d was given %d, is owed %g, and %g is noted", total, j, given[j], owed,
					p.owed)
			}
		}
	}
}

// A feeding is samples of one kind of stack.
type feeding struct {
	walk, link string
	times      int
}

// Waiting samples of a window are placed by what was learned until it closes.
func TestPlace(t *testing.T) {
	for _, c := range []struct {
		name    string
		samples []feeding
		want    map[string]uint64
	}{
		{"nothing waits", []feeding{{walk: "a:1@16 b:2@32 c:3@48", times: 2}},
			map[string]uint64{"certain: a:1 b:2 c:3": 2}},
		{"a known link, anywhere in its leaf", []feeding{
			{walk: "a:1@16 b:2@32 c:3@48", times: 1}, {link: "b:2@32 c:4@48", times: 3},
			{link: "b:2@32 c:5@48", times: 1},
		}, map[string]uint64{"certain: a:1 b:2 c:3": 1, "certain: a:1 b:2 c:4": 3, "certain: a:1 b:2 c:5": 1}},
		{"the walk comes later", []feeding{
			{link: "b:2@32 c:4@48", times: 3}, {walk: "a:1@16 b:2@32 c:3@48", times: 1},
		}, map[string]uint64{"certain: a:1 b:2 c:3": 1, "certain: a:1 b:2 c:4": 3}},
		{"another method below the same caller", []feeding{
			{walk: "a:1@16 b:2@32 c:3@48", times: 1}, {link: "b:7@32 d:4@48", times: 3},
		}, map[string]uint64{"certain: a:1 b:2 c:3": 1, "certain: a:1 b:7 d:4": 3}},
		{"a recursion, told by depths", []feeding{
			{walk: "a:1@16 b:2@32 b:2@48 b:2@64 c@80", times: 1}, {walk: "a:1@16 b:2@32 c@48", times: 1},
			{link: "b:2@64 c@80", times: 2}, {link: "b:2@32 c@48", times: 3},
		}, map[string]uint64{"certain: a:1 b:2 b:2 b:2 c": 3, "certain: a:1 b:2 c": 4}},
		{"interpreted, native and stub frames", []feeding{
			{walk: "0:1@16 A:2@32 !:3@48 1:4@64 0:9@80", times: 1}, {link: "1:4@64 2:8@80", times: 2},
			{link: "!:3@48 1:7@64", times: 1},
			{link: "A:2@32 !:9@48", times: 1},
		}, map[string]uint64{"certain: 0:1 A:2 !:3 1:4 0:9": 1, "certain: 0:1 A:2 !:3 1:4 2:8": 2,
			"certain: 0:1 A:2 !:3 1:7": 1, "certain: 0:1 A:2 !:9": 1}},
		// Weight 3:1, as walks found them.
		{"two contexts at one depth", []feeding{
			{walk: "a:1@16 d:5@40 e:1@60", times: 3}, {walk: "b:1@16 d:5@40 e:1@60", times: 1},
			{link: "d:5@40 e:1@60", times: 8},
		}, map[string]uint64{
			"certain: a:1 d:5 e:1": 3, "certain: b:1 d:5 e:1": 1, "ambiguous: a:1 d:5 e:1": 6,
			"ambiguous: b:1 d:5 e:1": 2,
		}},
		{"the leaf at its depth below the caller, whose depth is another", []feeding{
			{walk: "a:1@16 b:2@32 c:3@48", times: 1}, {link: "b:2@40 c:3@48", times: 2},
		}, map[string]uint64{"certain: a:1 b:2 c:3": 1, "fitted: a:1 b:2 c:3": 2}},
		{"a link that nobody knows", []feeding{
			{walk: "a:1@16 b:2@32 c:3@48", times: 1}, {link: "x:1@32 y:3@48", times: 3},
			{link: "b:2@40 c:3@56", times: 2},
		}, map[string]uint64{
			"certain: a:1 b:2 c:3": 1, "unplaced: [known from before] x:1 y:3": 3,
			"unplaced: [known from before] b:2 c:3": 2,
		}},
		{"links that lead to a walk", []feeding{
			{walk: "a:1@16 b:2@32 c:3@48", times: 1}, {link: "b:2@32 f:1@64", times: 1},
			{link: "f:2@64 g:1@80", times: 2},
		}, map[string]uint64{"certain: a:1 b:2 c:3": 1, "certain: a:1 b:2 f:1": 1, "certain: a:1 b:2 f:2 g:1": 2}},
		{"links that lead nowhere", []feeding{
			{link: "f:2@64 g:1@80", times: 2}, {link: "g:3@80 h:1@96", times: 4},
		}, map[string]uint64{"unplaced: [known from before] f:2 g:1": 2,
			"unplaced: [known from before] f:2 g:3 h:1": 4}},
		{"a stack of one frame", []feeding{{walk: "a@16", times: 2}}, map[string]uint64{"certain: a": 2}},
		{"a link without its caller", []feeding{{walk: "a:1@16 b:2@32 c:3@48", times: 1}, {link: "c:3@48", times: 2}},
			map[string]uint64{
				"certain: a:1 b:2 c:3": 1, "fitted: a:1 b:2 c:3": 2,
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, w := newContextState(t, JoinOptions{Contexts: profile.ContextChain})
			a.attach(7)
			var links, walks uint64
			for _, s := range c.samples {
				if s.walk != "" {
					a.walked(s.walk, s.times)
					walks += uint64(s.times)
				} else {
					a.linked(s.link, s.times)
					links += uint64(s.times)
				}
			}
			if got := a.placed(w); !maps.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
			for _, t2 := range w.Processes[a.state().Table[100]] {
				if t2.Count.Linked != links || t2.Count.Walked != walks {
					t.Errorf("%d linked, %d walked, want %d and %d", t2.Count.Linked, t2.Count.Walked, links, walks)
				}
			}
		})
	}
}

// The weight of a link is divided as a whole, although its samples are at many places of the leaf,
// and from many threads.
func TestPlaceDividesAllOfALink(t *testing.T) {
	a, w := newContextState(t, JoinOptions{Contexts: profile.ContextChain})
	a.attach(7)
	a.walked("a:1@16 d:5@40 e:1@60", 3)
	a.walked("b:1@16 d:5@40 e:1@60", 1)
	for i := range 80 {
		a.feed(record{
			Identity: java, TID: uint32(100 + i%8), Attachment: 7, Flags: bpf.SampleDepths | bpf.SampleLink,
			End:  bpf.EndKnown,
			User: fmt.Sprintf("d:5@40 e:%d@60", 10+i),
		})
	}
	got := map[string]uint64{}
	for path, n := range a.placed(w) {
		got[path[:len("ambiguous: a")]] += n
	}
	if got["ambiguous: a"] != 60 || got["ambiguous: b"] != 20 {
		t.Errorf("%v: not 3:1", got)
	}
}

// Why a walk ended early is part of its context.
func TestPlaceBelowTruncatedWalk(t *testing.T) {
	a, w := newContextState(t, JoinOptions{Contexts: profile.ContextChain})
	a.attach(7)
	walk := func(user string, end bpf.WalkEnd) {
		a.feed(record{Identity: java, Attachment: 7, Flags: bpf.SampleDepths, User: user, End: end})
	}
	walk("b:2@32 c:3@48", bpf.EndHeap)
	walk("b:2@32 f:2@48 g:3@64", bpf.EndPointer)
	walk("k:3@48", bpf.EndRead)
	a.linked("b:2@32 c:4@48", 2)
	a.linked("f:2@48 g:4@64", 3)
	want := map[string]uint64{
		"certain: [rest of virtual thread on heap] b:2 c:3": 1, "certain: [no frame pointer] b:2 f:2 g:3": 1,
		"certain: [stack not readable] k:3":                 1,
		"certain: [rest of virtual thread on heap] b:2 c:4": 2, "certain: [no frame pointer] b:2 f:2 g:4": 3,
	}
	if got := a.placed(w); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	// A walk that reached further shows the same context, as far as the other one goes.
	second := a.openForTest()
	walk("a:1@16 b:2@32 c:3@48", bpf.EndRoot)
	a.linked("b:2@32 c:4@48", 2)
	want = map[string]uint64{"certain: a:1 b:2 c:3": 1, "certain: a:1 b:2 c:4": 2}
	if got := a.placed(second); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// The kernel's frames are on top, whatever context is found; they are not part of the link.
func TestPlaceBelowKernel(t *testing.T) {
	a, w := newContextState(t, JoinOptions{Contexts: profile.ContextChain})
	a.attach(7)
	a.walked("a:1@16 b:2@32 c:3@48", 1)
	link := record{Identity: java, Attachment: 7, Flags: bpf.SampleDepths | bpf.SampleLink | bpf.SampleKernel,
		End: bpf.EndKnown}
	link.User, link.Kernel = "b:2@32 c:3@48", []uint64{0xffffffff81000001, 0xffffffff81000002}
	a.feed(link)
	link.User = "x:1@32 y:3@48"
	a.feed(link)
	link.User, link.Kernel = "b:2@32 c:3@48", link.Kernel[:1]
	a.feed(link)
	a.feed(record{Identity: java, Kernel: link.Kernel}) // a kernel thread has no other frames
	want := map[string]uint64{
		"certain: a:1 b:2 c:3": 1, "certain: a:1 b:2 c:3 kernel kernel": 1, "certain: a:1 b:2 c:3 kernel": 1,
		"unplaced: [known from before] x:1 y:3 kernel kernel": 1, "certain: kernel": 1,
	}
	if got := a.placed(w); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Beyond the maximum number of contexts, the rest is not placed, but not lost either.
func TestPlaceTooMany(t *testing.T) {
	a, w := newContextState(t, JoinOptions{Contexts: profile.ContextChain})
	a.attach(7)
	for i := range 20 {
		a.walked(fmt.Sprintf("a:%d@16 d:5@40 e:1@60", i+1), 1)
	}
	a.linked("d:5@40 e:1@60", 200)
	var ambiguous, unplaced uint64
	for path, n := range a.placed(w) {
		switch {
		case path == "unplaced: [known from before] d:5 e:1":
			unplaced += n
		case path[:10] == "ambiguous:" && n == 10:
			ambiguous += n
		case path[:8] != "certain:" || n != 1:
			t.Errorf("%s: %d", path, n)
		}
	}
	if ambiguous != 150 || unplaced != 50 { // 15 contexts, and one for the five others
		t.Errorf("%d ambiguous, %d unplaced", ambiguous, unplaced)
	}
}

// Samples without room in the tree of waiting samples are not placed: the rest of them is not a
// link.
func TestPlaceOverflow(t *testing.T) {
	a, w := newContextState(t, JoinOptions{Contexts: profile.ContextChain})
	p := a.attach(7)
	a.walked("a:1@16 b:2@32 c:3@48", 1)
	a.linked("b:2@32 c:3@48", 1)
	waiting := &w.Processes[p][ThreadKey(java.PID)].Waiting
	waiting.Limit = waiting.Len()
	a.linked("b:2@32 c:4@48", 2)  // the leaf has no room
	a.linked("x:2@32 c:4@48", 4)  // nor its caller
	a.linked("b:2@40 c:4@56", 8)  // nor the depths
	a.linked("b:2@32 c:3@48", 16) // has room
	want := map[string]uint64{
		"certain: a:1 b:2 c:3": 18, "unplaced: [known from before] b:2": 2, "unplaced: ": 12,
	}
	if got := a.placed(w); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Frames of a VM that has ended are not learned, and not placed.
func TestPlaceStale(t *testing.T) {
	a, w := newContextState(t, JoinOptions{Contexts: profile.ContextChain})
	p := a.attach(7)
	link := record{Identity: java, Attachment: 6, Flags: bpf.SampleDepths | bpf.SampleLink, End: bpf.EndKnown,
		User: "b:2@32 c:3@48"}
	a.feed(record{Identity: java, Attachment: 6, Flags: bpf.SampleDepths, User: "a:1@16 b:2@32 c:3@48"})
	a.feed(record{Identity: java, Attachment: 6, Flags: bpf.SampleDepths | bpf.SampleDrawn,
		User: "a:1@16 b:2@32 c:3@48"})
	a.feed(record{Identity: java, Attachment: 6, Flags: bpf.SampleDepths, User: "a:1@16 0:2@32 1:3@48"})
	a.feed(link)
	if stats := p.Chaining.Chain.Stats(); stats.Contexts != 0 || stats.Links != 0 || p.Chaining.WalkRate.Draws != 0 {
		t.Errorf("learned %+v, with %d draws", stats, p.Chaining.WalkRate.Draws)
	}
	a.walked("a:1@16 b:2@32 c:3@48", 1)
	link.Kernel = []uint64{0xffffffff81000001}
	a.feed(link)
	want := map[string]uint64{
		"certain: stale stale stale": 2, "certain: stale 0:2 1:3": 1, "certain: a:1 b:2 c:3": 1,
		"unplaced: [known from before] stale stale": 1, "unplaced: [known from before] stale stale kernel": 1,
	}
	if got := a.placed(w); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Each window places its own samples, with the contexts learned from all windows.
func TestPlaceTwoWindows(t *testing.T) {
	a, first := newContextState(t, JoinOptions{Contexts: profile.ContextChain})
	a.attach(7)
	a.linked("b:2@32 c:3@48", 1)
	a.linked("x:2@32 y:3@48", 1)
	second := a.openForTest()
	a.walked("a:1@16 b:2@32 c:3@48", 1)
	a.linked("b:2@32 c:3@48", 1)
	if got, want := a.placed(first), (map[string]uint64{"certain: a:1 b:2 c:3": 3,
		"unplaced: [known from before] x:2 y:3": 1}); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	a.linked("x:2@32 y:3@48", 1)
	a.walked("a:1@16 x:2@32 y:3@48", 1)
	a.linked("x:2@32 y:3@48", 1)
	third := a.openForTest()
	if got, want := a.placed(second), (map[string]uint64{"certain: a:1 b:2 c:3": 2,
		"certain: a:1 x:2 y:3": 3}); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	a.linked("b:2@32 c:3@48", 1) // learned before this window was open
	if got, want := a.placed(third), (map[string]uint64{"certain: a:1 b:2 c:3": 1}); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// If contexts are checked, all frames are in the sample, and only the link is used.
func TestPlaceChecked(t *testing.T) {
	for _, c := range []struct {
		name    string
		samples []feeding
		checked uint64
		right   [3]uint64 // one level, three levels, all
	}{
		{"right", []feeding{{walk: "a:1@16 b:2@32 c:3@48", times: 1}, {link: "a:1@16 b:2@32 c:3@48", times: 4}}, 4,
			[3]uint64{4, 4, 4}},
		{"wrong beyond one level", []feeding{{walk: "a:1@16 b:2@32 c:3@48", times: 1},
			{link: "d:1@16 b:2@32 c:3@48", times: 4}}, 4, [3]uint64{4, 0, 0}},
		{"another place in the caller's caller", []feeding{{walk: "a:1@16 b:2@32 c:3@48", times: 1},
			{link: "a:2@16 b:2@32 c:3@48", times: 4}}, 4, [3]uint64{4, 0, 0}},
		{"wrong beyond three levels", []feeding{
			{walk: "a:1@8 d:1@16 e:1@24 b:2@32 c:3@48", times: 1},
			{link: "a:2@8 d:1@16 e:1@24 b:2@32 c:3@48", times: 4},
		}, 4, [3]uint64{4, 4, 0}},
		{"a frame too many", []feeding{{walk: "a:1@8 d:1@16 b:2@32 c:3@48", times: 1},
			{link: "d:1@16 b:2@32 c:3@48", times: 4}}, 4, [3]uint64{4, 0, 0}},
		{"not placed", []feeding{{link: "a:1@16 b:2@32 c:3@48", times: 4}}, 4, [3]uint64{4, 0, 0}},
		{"not placed, and nothing is above", []feeding{{link: "b:2@32 c:3@48", times: 4}}, 4, [3]uint64{4, 0, 0}},
		{"known to its end by links only", []feeding{{link: "a:1@16 b:2@32", times: 2},
			{link: "a:1@16 b:2@32 c:3@48", times: 4}}, 6, [3]uint64{6, 0, 0}},
		{"ambiguous", []feeding{
			{walk: "a:1@16 d:5@40 e:1@60", times: 3}, {walk: "b:1@16 d:5@40 e:1@60", times: 1},
			{link: "a:1@16 d:5@40 e:1@60", times: 3}, {link: "b:1@16 d:5@40 e:1@60", times: 1},
		}, 4, [3]uint64{4, 3, 3}}, // as if all were in the likelier one
	} {
		t.Run(c.name, func(t *testing.T) {
			a, w := newContextState(t, JoinOptions{Contexts: profile.ContextChain, Check: true})
			p := a.attach(7)
			for _, s := range c.samples {
				if s.walk != "" {
					a.walked(s.walk, s.times)
				} else {
					a.linked(s.link, s.times)
				}
			}
			a.placed(w)
			got := a.owner.Contexts(p, w.Processes[p], a.opt.Contexts, a.opt.Check)
			if got.Check.Samples != c.checked || got.Check.Right != c.right || got.Linked != c.checked {
				t.Errorf("%+v of %d linked, want %v of %d", *got.Check, got.Linked, c.right, c.checked)
			}
		})
	}
}

// The walk of a checked sample may end right behind its link.
func TestPlaceCheckedTruncated(t *testing.T) {
	a, w := newContextState(t, JoinOptions{Contexts: profile.ContextChain, Check: true})
	p := a.attach(7)
	link := record{Identity: java, Attachment: 7, Flags: bpf.SampleDepths | bpf.SampleLink, End: bpf.EndRead,
		User: "b:2@32 c:3@48"}
	a.feed(link)
	link.User = "x:2@32 y:3@48"
	a.feed(link)
	a.walked("a:1@16 b:2@32 c:3@48", 1)
	want := map[string]uint64{"certain: a:1 b:2 c:3": 2, "unplaced: [known from before] x:2 y:3": 1}
	if got := a.placed(w); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := a.owner.Contexts(p, w.Processes[p], a.opt.Contexts,
		a.opt.Check).Check; *got != (profile.ContextCheck{Samples: 2, Right: [3]uint64{2, 0, 0}}) {
		t.Errorf("%+v", *got)
	}
}

// Frames named by a VM's map are distinguished from other code at the same place, but contexts are
// not: the kernel side does not know maps.
func TestPlaceMarksCode(t *testing.T) {
	a, w := newContextState(t, JoinOptions{Contexts: profile.ContextChain})
	p := a.attach(0)
	epoch := func(n uint32) {
		p.Code.Store(&guest.JITCode{Low: foldtest.Method('1', 0).PC(), High: foldtest.Method('9', 0).PC(), Epoch: n,
			Again: 1 << 62})
	}
	epoch(1)
	a.walked("0:1@16 1:2@32 2:3@48 1:4@64", 1)
	epoch(2)
	a.linked("2:3@48 1:4@64", 1)
	a.linked("2:3@48 1:5@64", 1)
	epoch(3)
	a.placed(w)
	marked := map[string]int{}
	tree := &w.Processes[p][ThreadKey(java.PID)].Trees[profile.Certain]
	for id, n := range tree.Nodes() {
		if n.Self > 0 {
			text := foldtest.Path(tree.Stack(id)) + ", epochs"
			for _, r := range slices.Backward(tree.Stack(id)) {
				text += fmt.Sprint(" ", r.Epoch)
			}
			marked[text]++
		}
	}
	want := map[string]int{
		"0:1 1:2 2:3 1:4, epochs 0 1 1 1": 1,
		// The epochs of the link are those when it was sampled, the others those of now.
		"0:1 1:2 2:3 1:4, epochs 0 3 2 2": 1, "0:1 1:2 2:3 1:5, epochs 0 3 2 2": 1,
	}
	if !maps.Equal(marked, want) {
		t.Errorf("got %v, want %v", marked, want)
	}
}
