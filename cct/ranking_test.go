package cct_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/cct"
)

func self(n cct.Node[string]) uint64    { return n.Self }
func entries(n cct.Node[string]) uint64 { return n.Entered }

// sorted is what Hottest avoids: all nodes with a weight in order.
func sorted(tree *cct.Tree[string], weight func(cct.Node[string]) uint64) (ids []cct.NodeID) {
	for id, n := range tree.Nodes() {
		if id != cct.Root && weight(n) > 0 {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b cct.NodeID) int {
		return cmp.Or(cmp.Compare(weight(tree.Node(b)), weight(tree.Node(a))), cmp.Compare(a, b))
	})
	return ids
}

// checkHottest compares with the sorted nodes, up to and past what is tracked.
func checkHottest(t *testing.T, tree *cct.Tree[string]) {
	t.Helper()
	nodes, edges := sorted(tree, self), sorted(tree, entries)
	for _, n := range []int{-1, 0, 1, tree.Tracked() - 1, tree.Tracked(), tree.Tracked() + 1, tree.Len() + 1} {
		if got, want := tree.Hottest(n), nodes[:min(max(n, 0), len(nodes))]; !slices.Equal(got, want) {
			t.Fatalf("tracking %d of %d: Hottest(%d) = %v, want %v", tree.Tracked(), tree.Len(), n, got, want)
		}
		if got, want := tree.HottestEdges(n), edges[:min(max(n, 0), len(edges))]; !slices.Equal(got, want) {
			t.Fatalf("tracking %d of %d: HottestEdges(%d) = %v, want %v", tree.Tracked(), tree.Len(), n, got, want)
		}
	}
}

func TestHottestContexts(t *testing.T) {
	tree := tree(figure6)
	tree.Track(2)
	tree.Add(nil, 1000) // no method's
	var got []string
	for _, id := range tree.Hottest(2) {
		got = append(got, path(tree.Stack(id)))
	}
	if want := []string{"A B D E", "A C D"}; !slices.Equal(got, want) {
		t.Errorf("Hottest(2) = %q, want %q", got, want)
	}
	if got := tree.HottestEdges(2); len(got) != 0 {
		t.Errorf("HottestEdges(2) = %v of a tree without new frames", got)
	}
}

// At any moment, whatever happens to a tree. The weights are small, so that many are equal.
func TestHottestIsExact(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 4))
		tree := cct.Tree[string]{Limit: 20 + r.IntN(200)}
		tree.Track(r.IntN(30))
		g := randomGuest(r, &tree, 0)
		for range 300 {
			switch r.IntN(100) {
			case 0:
				tree.Purge()
			case 1:
				tree.Track(r.IntN(30))
			case 2:
				var other cct.Tree[string]
				randomGuest(r, &other, 100)
				tree.Merge(&other)
			case 3:
				tree.Merge(&tree)
			default:
				g.run(r, 3)
			}
			checkHottest(t, &tree)
		}
		mapped := cct.Map(&tree, func(key string) []string { return map[string][]string{"b": {"x", "y"}, "c": {"a"}, "d": {"a"}}[key] })
		if mapped.Tracked() != tree.Tracked() {
			t.Fatalf("Map of a tree that tracks %d tracks %d", tree.Tracked(), mapped.Tracked())
		}
		checkHottest(t, mapped)
		if t.Failed() {
			t.Fatalf("with seed %d", seed)
		}
	}
}

// Weights that all grow in turn, so that every one of them becomes the heaviest.
func TestHottestTurns(t *testing.T) {
	for _, backwards := range []bool{false, true} {
		var tree cct.Tree[string]
		tree.Track(5)
		for range 3 {
			for i := range 26 {
				if backwards {
					i = 25 - i
				}
				tree.AddNew([]string{string(rune('a' + i))}, 1, 1)
				checkHottest(t, &tree)
			}
		}
	}
}

// FuzzHottest reads what happens to a tree from bytes: its limit, what it tracks, then stacks, each ended by a byte
// below 16 that is the number of new frames; 15 purges, too. A plain map keeps the same account.
func FuzzHottest(f *testing.F) {
	f.Add([]byte("\x00\x02ab\x02ab\x00ac\x01a\x01\x0fab\x02"))
	f.Add([]byte("\x03\x01aaaa\x04aaab\x01b\x01\x00aa\x0e"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < 2 || len(data) > 1<<10 {
			return
		}
		tree := cct.Tree[string]{Limit: int(data[0])}
		tree.Track(int(data[1]))
		type weights struct{ self, entered uint64 }
		want := map[string]*weights{"": {}}
		var total, overflow weights
		var frames []string // outermost first
		for _, b := range data[2:] {
			if b >= 16 {
				frames = append(frames, string(rune(b)))
				continue
			}
			fresh := min(int(b), len(frames))
			found, at := "", 0
			for ; at < len(frames); at++ {
				next := found + frames[at]
				if want[next] == nil {
					if tree.Limit > 0 && len(want)-1 >= tree.Limit {
						break
					}
					want[next] = &weights{}
				}
				found = next
				if at >= len(frames)-fresh {
					want[found].entered++
					total.entered++
				}
			}
			want[found].self++
			total.self++
			if at < len(frames) {
				overflow.self++
				overflow.entered += uint64(min(fresh, len(frames)-at))
			}
			slices.Reverse(frames)
			tree.AddNew(frames, int(b), 1)
			frames = frames[:0]
			if b == 15 {
				tree.Purge()
				want, total, overflow = map[string]*weights{"": {}}, weights{}, weights{}
			}
		}
		if got := (weights{tree.Total(), tree.EdgeTotal()}); got != total {
			t.Fatalf("Total, EdgeTotal = %+v, want %+v", got, total)
		}
		if got := (weights{tree.Overflow(), tree.EdgeOverflow()}); got != overflow {
			t.Fatalf("Overflow, EdgeOverflow = %+v, want %+v", got, overflow)
		}
		for id, n := range tree.Nodes() {
			key := ""
			for _, frame := range tree.Stack(id) {
				key = frame + key
			}
			if w := want[key]; w == nil || *w != (weights{n.Self, n.Entered}) {
				t.Fatalf("%q = %+v, want %+v", key, n, w)
			}
		}
		if tree.Len() != len(want)-1 {
			t.Fatalf("Len() = %d, want %d", tree.Len(), len(want)-1)
		}
		checkHottest(t, &tree)
	})
}
