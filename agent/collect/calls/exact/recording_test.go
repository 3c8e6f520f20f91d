package exact

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

// nodes are those of two threads: 1 is complete and calls a -> {b -> c, d}, 2 is not complete.
func nodes() []bpf.ExactNode {
	return []bpf.ExactNode{
		{},
		{Method: 100},
		{Method: 'a', Parent: 1, Calls: 1},
		{Method: 'b', Parent: 2, Calls: 2, Overflow: 7},
		{Method: 200, Overflow: 1},
		{Method: 'c', Parent: 3, Calls: 3},
		{Method: 'a', Parent: 4, ClassEpoch: 9, Calls: 4},
		{Method: 'd', Parent: 2, Calls: 5},
		{Parent: 0}, // under construction
	}
}

func snapshot() *Snapshot {
	s := &Snapshot{
		nodes: nodes(),
		edges: map[bpf.ExactEdge]uint64{
			{Callee: 'b', Caller: 'a', Site: 0x1234, ClassEpoch: 1}:             2,
			{Callee: 'd', Caller: 'a', Site: 0x5678, ClassEpoch: 1, Inlined: 1}: 5,
			{Callee: 'a', ClassEpoch: 9}:                                        4,
		},
		threads: map[uint32]bpf.ExactThread{
			1: {Tid: 100, Start: 11, Complete: 1, Comm: [16]uint8{'m', 'a', 'i', 'n'}},
			4: {Tid: 200, Start: 22},
		},
	}
	s.counts[bpf.ExactEntries], s.counts[bpf.ExactExits] = 23, 20
	s.counts[bpf.ExactNoNode], s.counts[bpf.ExactTooDeep] = 7, 1
	return s
}

// contexts are the weights of a tree by path, outermost first.
func contexts(tree *cct.Tree[Method]) map[string]uint64 {
	found := map[string]uint64{}
	for id, n := range tree.Nodes() {
		if n.Self == 0 {
			continue
		}
		var path []string
		for _, m := range slices.Backward(tree.Stack(id)) {
			text := m.Marker()
			if text == "" {
				text = string(rune(m.Addr))
			}
			path = append(path, text)
		}
		found[strings.Join(path, " ")] = n.Self
	}
	return found
}

func TestSince(t *testing.T) {
	r := snapshot().Since(nil)
	if r.Calls != 23 || r.Returns != 20 || r.Losses != (Losses{NoNode: 7, TooDeep: 1}) {
		t.Errorf("recording of %d calls, %d returns, lost %+v", r.Calls, r.Returns, r.Losses)
	}
	want := []map[string]uint64{
		{"a": 1, "a b": 2, "a b [overflow]": 7, "a b c": 3, "a d": 5},
		{"[before recording] a": 4, "[before recording] [overflow]": 1},
	}
	if len(r.Threads) != 2 {
		t.Fatalf("%d threads", len(r.Threads))
	}
	var sum uint64
	for i, thread := range r.Threads {
		if got := contexts(thread.Tree); !maps.Equal(got, want[i]) {
			t.Errorf("thread %d: %v, want %v", thread.TID, got, want[i])
		}
		sum += thread.Tree.Total()
	}
	if sum != r.Calls {
		t.Errorf("%d calls in trees", sum)
	}
	first, second := r.Threads[0], r.Threads[1]
	if first.TID != 100 || first.Name != "main" || first.Start != 11 || !first.Complete || second.TID != 200 ||
		second.Complete {
		t.Errorf("threads %+v and %+v", first, second)
	}
	if all := r.Tree(); all.Total() != r.Calls || all.Len() != first.Tree.Len()+second.Tree.Len() ||
		all.Overflow() != 0 {
		t.Errorf("together %d contexts with %d calls", all.Len(), all.Total())
	}
}

func TestSinceEarlier(t *testing.T) {
	earlier, later := snapshot(), snapshot()
	earlier.nodes = earlier.nodes[:7] // d had not been called
	earlier.nodes[3].Calls, earlier.nodes[3].Overflow = 1, 7
	earlier.nodes[6].Calls, earlier.edges = 1, map[bpf.ExactEdge]uint64{{Callee: 'a', ClassEpoch: 9}: 1}
	earlier.counts[bpf.ExactEntries] = 13
	r := later.Since(earlier)
	if got, want := contexts(r.Threads[0].Tree), (map[string]uint64{"a b": 1, "a d": 5}); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got, want := contexts(r.Threads[1].Tree), (map[string]uint64{"[before recording] a": 3}); !maps.Equal(got,
		want) {
		t.Errorf("%v, want %v", got, want)
	}
	if r.Calls != 10 || r.Graph.Len() != 3 || r.Graph.Total() != 2+5+3 {
		t.Errorf("%d calls, %d edges of %v", r.Calls, r.Graph.Len(), r.Graph.Total())
	}
	if again := later.Since(later); len(again.Threads) != 0 || again.Graph.Len() != 0 || again.Losses != (Losses{}) {
		t.Errorf("since itself: %+v", again)
	}
}

// Middle returns a snapshot with at least a third of the time on either side.
func TestMiddle(t *testing.T) {
	first, second := &Snapshot{}, &Snapshot{}
	var m Middles[*Snapshot]
	m.Keep(&Snapshot{}, time.Second)
	m.Keep(first, 3*time.Second)
	m.Keep(second, 7*time.Second)
	for length, want := range map[time.Duration]*Snapshot{8 * time.Second: first, 10 * time.Second: first,
		11 * time.Second: second, 14 * time.Second: second} {
		if m.Middle(length) != want {
			t.Errorf("%v: the other snapshot", length)
		}
	}
	if (&Middles[*Snapshot]{}).Middle(time.Second) != nil {
		t.Error("a snapshot of nothing")
	}
}

// If one half of a recording calls other methods than the other half, the recording covers part of
// a phase.
func TestPhaseNote(t *testing.T) {
	edges := func(a, b uint64) *Snapshot {
		return &Snapshot{edges: map[bpf.ExactEdge]uint64{{Callee: 'a'}: a, {Callee: 'b'}: b}}
	}
	for _, c := range []struct {
		middle, end *Snapshot
		note        string
	}{
		{nil, edges(10, 0), ""},
		{edges(10, 10), edges(20, 20), ""},
		{edges(10, 10), edges(22, 18), ""},
		{edges(10, 0), edges(10, 10), "have 0 % of the calls in common"},
		{edges(10, 10), edges(30, 12), "have 59 % of the calls in common"},
	} {
		if got := c.end.PhaseNote(c.middle); got != "" != (c.note != "") || !strings.Contains(got, c.note) {
			t.Errorf("got %q, want %q", got, c.note)
		}
	}
	nodes, middle := snapshot(), snapshot()
	nodes.edges, middle.edges = nil, nil
	middle.nodes = middle.nodes[:0]
	if got := nodes.PhaseNote(middle); !strings.Contains(got, "have 0 % of the calls in common") {
		t.Errorf("contexts, all of them in the second half: %q", got)
	}
}

// What was allocated is in the contexts of the tree, also where nothing was called, and where the
// context found no room.
func TestAllocations(t *testing.T) {
	s, earlier := snapshot(), snapshot()
	klass := func(node, addr uint32) bpf.ExactAllocation {
		return bpf.ExactAllocation{Klass: uint64(addr), Node: node}
	}
	s.objects = map[bpf.ExactAllocation]bpf.ExactAllocations{
		klass(3, 'X'):               {Objects: 5, Bytes: 80}, // in b
		klass(3, 'Y'):               {Objects: 1, Bytes: 16},
		klass(3|bpf.ExactLost, 'X'): {Objects: 2, Bytes: 32},
		klass(4, 'X'):               {Objects: 9, Bytes: 90}, // the second thread, in no method that is known
	}
	earlier.objects = map[bpf.ExactAllocation]bpf.ExactAllocations{klass(3, 'X'): {Objects: 1, Bytes: 16},
		klass(3, 'Y'): {Objects: 1, Bytes: 16}}
	got := map[string][2]uint64{}
	for _, thread := range s.Since(earlier).Threads {
		for _, a := range thread.Allocations {
			var path []string
			for _, m := range slices.Backward(thread.Tree.Stack(a.Context)) {
				path = append(path, cmp.Or(m.Marker(), string(rune(m.Addr))))
			}
			got[strings.Join(path, " ")+": "+string(rune(a.Class.Addr))] = [2]uint64{a.Objects, a.Bytes}
		}
	}
	want := map[string][2]uint64{
		"a b: X": {4, 64}, "a b [overflow]: X": {2, 32}, "[before recording]: X": {9, 90},
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A recursion is at most as deep as the shadow stack.
func TestDeepTree(t *testing.T) {
	s := &Snapshot{nodes: []bpf.ExactNode{{}, {Method: 1}}}
	for range bpf.ExactDepth {
		s.nodes = append(s.nodes, bpf.ExactNode{Method: 'r', Parent: uint32(len(s.nodes) - 1), Calls: 1})
	}
	tree := s.Since(nil).Threads[0].Tree
	if tree.Len() != bpf.ExactDepth+1 || tree.Total() != bpf.ExactDepth {
		t.Errorf("%d contexts with %d calls", tree.Len(), tree.Total())
	}
}

func TestNotes(t *testing.T) {
	if notes := (Losses{Before: 1}).Notes(); len(notes) != 0 {
		t.Errorf("a recording that began late is no loss: %q", notes)
	}
	notes := Losses{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}.Notes()
	numbers := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 11}
	if len(notes) != len(numbers) {
		t.Fatalf("%d notes: %q", len(notes), notes)
	}
	for i, note := range notes {
		if !strings.HasPrefix(note, strconv.Itoa(numbers[i])+" ") || !strings.HasSuffix(note, ".") ||
			strings.Contains(note, "%!") {
			t.Errorf("note %q", note)
		}
	}
}
