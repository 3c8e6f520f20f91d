package cct_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"weak"

	"github.com/vmprof-agent/vmprof-agent/cct"
)

func TestAddKeepsContexts(t *testing.T) {
	for name, want := range map[string]map[string]uint64{
		"inoue figure 6":  figure6,
		"inoue figure 7a": figure7a,
		"recursion":       recursive,
		"empty stack":     {"": 3},
		"nothing":         {},
	} {
		t.Run(name, func(t *testing.T) {
			if got := contexts(tree(want)); !maps.Equal(got, want) {
				t.Errorf("contexts = %v, want %v", got, want)
			}
		})
	}
}

// E is reached through C and through B and D: two nodes. The samples of one context share one.
func TestAddDistinguishesPaths(t *testing.T) {
	var tree cct.Tree[string]
	viaC := tree.Add(stack("A C E"), 1)
	viaD := tree.Add(stack("A B D E"), 1)
	if viaC == viaD {
		t.Errorf("A-C-E and A-B-D-E are the same node")
	}
	if again := tree.Add(stack("A C E"), 1); again != viaC {
		t.Errorf("A-C-E is node %d first and %d later", viaC, again)
	}
	if got, want := tree.Node(viaC), (cct.Node[string]{Key: "E", Self: 2, Parent: 2,
		Depth: 3}); tree.Node(got.Parent).Key != "C" || got.Self != want.Self || got.Depth != want.Depth {
		t.Errorf("A-C-E = %+v", got)
	}
	if tree.Len() != 6 {
		t.Errorf("Len() = %d, want 6: A B C D and E twice", tree.Len())
	}
}

func TestAddRandom(t *testing.T) {
	eachRandomTree(t, func(t *testing.T, _ *rand.Rand, tree *cct.Tree[string], want map[string]uint64) {
		if got := contexts(tree); !maps.Equal(got, want) {
			t.Errorf("contexts = %v, want %v", got, want)
		}
	})
}

// More children than fit into the list: the others are found by hash and none is made twice.
func TestAddWideNode(t *testing.T) {
	var tree cct.Tree[int]
	const children = 1000
	for range 2 {
		for i := range children {
			tree.Add([]int{i, -1}, 1)
		}
	}
	if tree.Len() != children+1 {
		t.Fatalf("Len() = %d, want %d", tree.Len(), children+1)
	}
	seen := make(map[int]bool)
	for id := range tree.Children(1) {
		n := tree.Node(id)
		seen[n.Key] = true
		if n.Self != 2 || n.Parent != 1 {
			t.Errorf("child %d = %+v", n.Key, n)
		}
	}
	if len(seen) != children {
		t.Errorf("Children visits %d of %d", len(seen), children)
	}
}

// A full tree loses detail, never weight.
func TestLimit(t *testing.T) {
	tree := cct.Tree[string]{Limit: 3}
	tree.Add(stack("A B"), 1)
	tree.Add(stack("A B C D E"), 2) // room for C only
	tree.Add(stack("A B C D E"), 3) // the same stack again
	tree.Add(stack("X"), 4)
	tree.Add(stack("A B"), 5)
	want := map[string]uint64{"A B": 6, "A B C": 5, "": 4}
	if got := contexts(&tree); !maps.Equal(got, want) {
		t.Errorf("contexts = %v, want %v", got, want)
	}
	if tree.Len() != 3 || tree.Total() != 15 || tree.Overflow() != 9 {
		t.Errorf("Len, Total, Overflow = %d, %d, %d, want 3, 15, 9", tree.Len(), tree.Total(), tree.Overflow())
	}
}

// Whaley distinguishes methods that are called often from those that run long by whether their
// frame is new.
func TestAddNewTellsOftenFromLong(t *testing.T) {
	var tree cct.Tree[string]
	var often, long cct.NodeID
	for i := range 5 {
		often = tree.AddNew(stack("main often"), 1, 1)
		long = tree.AddNew(stack("main long"), max(1-i, 0), 1)
	}
	if n := tree.Node(often); n.Self != 5 || n.Entered != 5 {
		t.Errorf("called 5 times: %+v", n)
	}
	if n := tree.Node(long); n.Self != 5 || n.Entered != 1 {
		t.Errorf("called once: %+v", n)
	}
}

// The call site is part of the caller's key: calls of one method from two places of another are two
// edges.
func TestAddNewTellsCallSites(t *testing.T) {
	var tree cct.Tree[string]
	for path, fresh := range map[string]int{"main f:1 g": 3, "main f:2 g": 1, "main f:2 h": 1} {
		tree.AddNew(stack(path), fresh, 1)
	}
	if got, want := entered(&tree), map[string]uint64{"main": 1, "main f:1": 1, "main f:1 g": 1, "main f:2 g": 1,
		"main f:2 h": 1}; !maps.Equal(got, want) {
		t.Errorf("entered %v, want %v", got, want)
	}
}

// Every activation that was ever sampled counts once.
func TestAddNewCountsActivations(t *testing.T) {
	for seed := range uint64(50) {
		var tree cct.Tree[string]
		want := randomGuest(rand.New(rand.NewPCG(seed, 2)), &tree, 500).entered
		if got := entered(&tree); !maps.Equal(got, want) {
			t.Fatalf("seed %d: entered %v, want %v", seed, got, want)
		}
		if tree.EdgeTotal() != sum(want) || tree.EdgeOverflow() != 0 {
			t.Fatalf("seed %d: EdgeTotal, EdgeOverflow = %d, %d, want %d, 0", seed, tree.EdgeTotal(),
				tree.EdgeOverflow(), sum(want))
		}
	}
}

func TestAddNewBoundsFresh(t *testing.T) {
	var tree cct.Tree[string]
	tree.AddNew(stack("A B"), -1, 1)
	tree.AddNew(nil, 7, 1)
	if got := entered(&tree); len(got) > 0 {
		t.Errorf("entered %v, want nothing", got)
	}
	tree.AddNew(stack("A B"), math.MaxInt, 1)
	if got, want := entered(&tree), map[string]uint64{"A": 1, "A B": 1}; !maps.Equal(got, want) {
		t.Errorf("entered %v, want %v", got, want)
	}
	if tree.Total() != 3 || tree.EdgeTotal() != 2 || tree.EdgeOverflow() != 0 {
		t.Errorf("Total, EdgeTotal, EdgeOverflow = %d, %d, %d, want 3, 2, 0", tree.Total(), tree.EdgeTotal(),
			tree.EdgeOverflow())
	}
}

// Whaley's figure of recursion: the calling context tree folds recursive calls into back edges, but
// here each level is a node, with its own time and its own edge.
func TestRecursionKeepsFullContext(t *testing.T) {
	var tree cct.Tree[string]
	tree.AddNew(stack("A B A B C"), 5, 1)
	tree.AddNew(stack("A B A"), 0, 1)
	tree.AddNew(stack("A B A B C"), 2, 1)
	tree.AddNew(stack("A B C"), 1, 1)
	if got, want := contexts(&tree), map[string]uint64{"A B A B C": 2, "A B A": 1, "A B C": 1}; !maps.Equal(got, want) {
		t.Errorf("contexts = %v, want %v", got, want)
	}
	if got, want := entered(&tree), map[string]uint64{"A": 1, "A B": 1, "A B A": 1, "A B A B": 2, "A B A B C": 2,
		"A B C": 1}; !maps.Equal(got, want) {
		t.Errorf("entered %v, want %v", got, want)
	}
	if tree.Len() != 6 {
		t.Errorf("Len() = %d, want 6", tree.Len())
	}
}

// New frames without room are counted as overflow, and at no other node.
func TestAddNewLimit(t *testing.T) {
	tree := cct.Tree[string]{Limit: 3}
	for _, add := range []struct {
		path     string
		fresh    int
		overflow uint64 // overflow of edges from this stack
	}{
		{"A B", 2, 0},
		{"A B C D E", 3, 2}, // room for C only
		{"A B C D E", 1, 1}, // neither C nor D is new
		{"A B C D E", 0, 0},
		{"A B C D E", 4, 2}, // B and C have nodes
		{"X", 1, 1},
		{"A B", 1, 0},
	} {
		before := tree.EdgeOverflow()
		tree.AddNew(stack(add.path), add.fresh, 1)
		if got := tree.EdgeOverflow() - before; got != add.overflow {
			t.Errorf("%s, %d new: %d edges overflow, want %d", add.path, add.fresh, got, add.overflow)
		}
	}
	if got, want := entered(&tree), map[string]uint64{"A": 1, "A B": 3, "A B C": 2}; !maps.Equal(got, want) {
		t.Errorf("entered %v, want %v", got, want)
	}
	if tree.EdgeTotal()+tree.EdgeOverflow() != 2+3+1+4+1+1 {
		t.Errorf("EdgeTotal, EdgeOverflow = %d, %d of 12 new frames", tree.EdgeTotal(), tree.EdgeOverflow())
	}
}

// A purged tree behaves like a new one, whatever it contained.
func TestPurge(t *testing.T) {
	tree := cct.Tree[string]{Limit: 40}
	tree.Purge()
	for seed := range uint64(50) {
		fresh := cct.Tree[string]{Limit: 40}
		for _, tree := range []*cct.Tree[string]{&tree, &fresh} {
			randomGuest(rand.New(rand.NewPCG(seed, 3)), tree, 500)
		}
		if got, want := maps.Collect(tree.Nodes()), maps.Collect(fresh.Nodes()); !maps.Equal(got, want) {
			t.Fatalf("seed %d: %v, want %v", seed, got, want)
		}
		got := [...]uint64{tree.Total(), tree.Overflow(), tree.EdgeTotal(), tree.EdgeOverflow()}
		if want := [...]uint64{fresh.Total(), fresh.Overflow(), fresh.EdgeTotal(), fresh.EdgeOverflow()}; got != want {
			t.Fatalf("seed %d: Total, Overflow, EdgeTotal, EdgeOverflow = %d, want %d", seed, got, want)
		}
		tree.Purge()
		if tree.Len() != 0 || tree.Total() != 0 || tree.EdgeTotal() != 0 || len(tree.Totals()) != 1 {
			t.Fatalf("seed %d: a purged tree has %d nodes, weighs %d and %d", seed, tree.Len(), tree.Total(),
				tree.EdgeTotal())
		}
	}
}

// A purged tree does not mistake the zero key for the previous stack's.
func TestPurgeZeroKey(t *testing.T) {
	var tree cct.Tree[int]
	for range 2 {
		if id := tree.Add([]int{0, 0}, 1); tree.Len() != 2 || tree.Node(id).Depth != 2 {
			t.Errorf("Len() = %d, %+v", tree.Len(), tree.Node(id))
		}
		tree.Purge()
	}
}

// Purge keeps the memory, but not the objects that keys point to.
func TestPurgeLetsGoOfKeys(t *testing.T) {
	var tree cct.Tree[*[100]int]
	var keys []weak.Pointer[[100]int]
	for range 20 { // enough to be hashed
		key, leaf := new([100]int), new([100]int)
		keys = append(keys, weak.Make(key), weak.Make(leaf))
		tree.Add([]*[100]int{leaf, key}, 1)
	}
	tree.Purge()
	runtime.GC()
	for i, key := range keys {
		if key.Value() != nil {
			t.Errorf("key %d is still reachable", i)
		}
	}
	runtime.KeepAlive(&tree)
}

// Neither consecutive windows nor a steady state may allocate: Add runs on the goroutine that
// drains the kernel's ring. The stacks make nodes wide enough to be hashed.
func TestAddDoesNotAllocate(t *testing.T) {
	stacks := benchmarkStacks(30, 100)
	var tree cct.Tree[int]
	add := func() {
		for i, s := range stacks {
			tree.AddNew(s, i%3, 1)
		}
	}
	if allocs := testing.AllocsPerRun(100, add); allocs != 0 {
		t.Errorf("%v allocations per run", allocs)
	}
	if allocs := testing.AllocsPerRun(100, func() { tree.Purge(); add() }); allocs != 0 {
		t.Errorf("%v allocations per purge and run", allocs)
	}
}

// FuzzTree reads stacks from bytes and compares with a plain map: 0 ends a stack, the first byte is
// the limit.
func FuzzTree(f *testing.F) {
	f.Add([]byte("\x00ab\x00ac\x00"))
	f.Add([]byte("\x03aaaa\x00aaab\x00b\x00\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 || len(data) > 1<<12 {
			return
		}
		limited := cct.Tree[byte]{Limit: int(data[0])}
		var whole cct.Tree[byte]
		var total uint64
		want := make(map[string]uint64)
		var stack []byte
		for _, b := range data[1:] {
			if b != 0 {
				stack = append(stack, b)
				continue
			}
			limited.Add(stack, 1)
			want[string(stack)]++
			if id := whole.Add(stack, 1); string(whole.Stack(id)) != string(stack) {
				t.Fatalf("Add(%q) returned the node of %q", stack, whole.Stack(id))
			}
			total++
			stack = stack[:0]
		}
		for id, n := range whole.Nodes() {
			if key := string(whole.Stack(id)); n.Self != want[key] {
				t.Fatalf("%q has weight %d, want %d", key, n.Self, want[key])
			}
			if id != cct.Root && n.Parent >= id {
				t.Fatalf("node %d comes before its parent %d", id, n.Parent)
			}
		}
		if limited.Limit > 0 && limited.Len() > limited.Limit {
			t.Fatalf("%d nodes, limit %d", limited.Len(), limited.Limit)
		}
		limited.Merge(&whole)
		if got := limited.Totals()[cct.Root]; got != 2*total || limited.Total() != got {
			t.Fatalf("nodes weigh %d, Total() = %d, want %d", got, limited.Total(), 2*total)
		}
		if overlap := cct.Overlap(&limited, &whole); overlap < 0 || overlap > 100 {
			t.Fatalf("Overlap = %v", overlap)
		}
		cct.Hot(&limited, func(b byte) byte { return b })
	})
}

// benchmarkStacks returns n stacks of the given depth that differ in their two innermost frames.
func benchmarkStacks(depth, n int) [][]int {
	stacks := make([][]int, n)
	for i := range stacks {
		stacks[i] = make([]int, depth)
		for j := range stacks[i] {
			stacks[i][j] = j
		}
		stacks[i][0], stacks[i][1] = 1000+i, 2000+i
	}
	return stacks
}

func BenchmarkAdd(b *testing.B) {
	for _, bench := range []struct{ depth, distinct int }{{20, 4}, {20, 1000}, {100, 4}, {100, 1000}, {1000, 4}} {
		b.Run(fmt.Sprintf("depth=%d/distinct=%d", bench.depth, bench.distinct), func(b *testing.B) {
			benchmarkAdd(b, bench.depth, bench.distinct, (*cct.Tree[int]).Add)
		})
	}
}

func BenchmarkAddNew(b *testing.B) {
	for _, bench := range []struct{ depth, distinct int }{{20, 4}, {20, 1000}, {100, 4}, {100, 1000}} {
		b.Run(fmt.Sprintf("depth=%d/distinct=%d", bench.depth, bench.distinct), func(b *testing.B) {
			benchmarkAdd(b, bench.depth, bench.distinct, func(tree *cct.Tree[int], stack []int,
				weight uint64) cct.NodeID {
				return tree.AddNew(stack, 2, weight)
			})
		})
	}
}

// benchmarkAdd draws from its stacks at random, with a bias to the earlier ones.
func benchmarkAdd(b *testing.B, depth, distinct int, add func(*cct.Tree[int], []int, uint64) cct.NodeID) {
	var tree cct.Tree[int]
	stacks, r := benchmarkStacks(depth, distinct), rand.New(rand.NewPCG(1, 1))
	var order [1 << 12][]int
	for i := range order {
		order[i] = stacks[min(r.IntN(distinct), r.IntN(distinct), r.IntN(distinct))]
	}
	for _, s := range stacks {
		tree.Add(s, 1)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		add(&tree, order[i%len(order)], 1)
	}
}

func TestZeroTree(t *testing.T) {
	var tree cct.Tree[string]
	if tree.Len() != 0 || tree.Total() != 0 || tree.Overflow() != 0 {
		t.Errorf("Len, Total, Overflow = %d, %d, %d", tree.Len(), tree.Total(), tree.Overflow())
	}
	if got := maps.Collect(tree.Nodes()); len(got) != 1 || got[cct.Root] != (cct.Node[string]{}) {
		t.Errorf("Nodes() = %v, want only an empty Root", got)
	}
	if got := slices.Collect(tree.Children(cct.Root)); got != nil {
		t.Errorf("Children(Root) = %v", got)
	}
	if got := tree.Stack(cct.Root); len(got) != 0 {
		t.Errorf("Stack(Root) = %v", got)
	}
	if got := tree.Totals(); !slices.Equal(got, []uint64{0}) {
		t.Errorf("Totals() = %v", got)
	}
	if got := cct.Hot(&tree, identity); len(got) != 0 {
		t.Errorf("Hot = %v", got)
	}
	var other cct.Tree[string]
	other.Merge(&tree)
	if other.Len() != 0 || cct.Map(&tree, strings.Fields).Len() != 0 {
		t.Errorf("the empty tree merges or maps into something")
	}
}

// figure12 is a part of Figure 12 of Inoue and Nakatani (OOPSLA 2009): the cache misses of two
// transactions of SPECjbb2005 in their contexts. "…" stands for callees that the figure does not
// show, each below 0.3% of all.
var figure12 = map[string]uint64{
	"go goManual":                        2953,
	"go goManual CustomerReport.process": 74758,
	"go goManual CustomerReport.process getCustomerByLastName":          454,
	"go goManual CustomerReport.process getCustomerByLastName …":        734,
	"go goManual DeliveryTransaction.process":                           122,
	"go goManual DeliveryTransaction.process preprocess":                74438,
	"go goManual DeliveryTransaction.process preprocess oldNewOrders":   780,
	"go goManual DeliveryTransaction.process preprocess oldNewOrders …": 103,
	"go goManual DeliveryTransaction.process preprocess oldOrders":      691,
	"go goManual DeliveryTransaction.process preprocess oldOrders …":    299,
	"go goManual DeliveryTransaction.process preprocess …":              593,
	"go goManual DeliveryTransaction.process …":                         54,
}

func TestTotalsFigure12(t *testing.T) {
	tree := tree(figure12)
	totals := tree.Totals()
	got := make(map[string]uint64)
	for id, n := range tree.Nodes() {
		got[n.Key] = totals[id]
	}
	// The "d:" column of the figure.
	for method, want := range map[string]uint64{
		"CustomerReport.process":      75946,
		"getCustomerByLastName":       1188,
		"DeliveryTransaction.process": 77080,
		"preprocess":                  76904,
		"oldNewOrders":                883,
		"oldOrders":                   990,
	} {
		if got[method] != want {
			t.Errorf("%s and its descendants weigh %d, want %d", method, got[method], want)
		}
	}
	if totals[cct.Root] != tree.Total() {
		t.Errorf("Root weighs %d, the tree %d", totals[cct.Root], tree.Total())
	}
}

func TestNodesStopsEarly(t *testing.T) {
	tree := tree(figure6)
	n := 0
	for range tree.Nodes() {
		if n++; n == 2 {
			break
		}
	}
	for range tree.Children(cct.Root) {
		break
	}
}

// Every node is a child of its parent, and of no other node.
func TestChildrenAreNodes(t *testing.T) {
	eachRandomTree(t, func(t *testing.T, _ *rand.Rand, tree *cct.Tree[string], _ map[string]uint64) {
		seen := make(map[cct.NodeID]int)
		for id := range tree.Nodes() {
			for child := range tree.Children(id) {
				seen[child]++
				if n := tree.Node(child); n.Parent != id || n.Depth != tree.Node(id).Depth+1 {
					t.Errorf("node %d = %+v is a child of %d", child, n, id)
				}
			}
		}
		for id, n := range seen {
			if n != 1 {
				t.Errorf("node %d is a child %d times", id, n)
			}
		}
		if len(seen) != tree.Len() {
			t.Errorf("%d of %d nodes are children", len(seen), tree.Len())
		}
	})
}

// FuzzAddNew reads operations on a tree from bytes: its limit, then stacks, each ended by a byte
// below 16 that is the number of new frames; 15 also purges. A plain map keeps the same account.
func FuzzAddNew(f *testing.F) {
	f.Add([]byte("\x00ab\x02ab\x00ac\x01a\x01\x0fab\x02"))
	f.Add([]byte("\x03aaaa\x04aaab\x01b\x01\x00aa\x0e"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < 1 || len(data) > 1<<10 {
			return
		}
		tree := cct.Tree[string]{Limit: int(data[0])}
		type weights struct{ self, entered uint64 }
		want := map[string]*weights{"": {}}
		var total, overflow weights
		var frames []string // outermost first
		for _, b := range data[1:] {
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

// A tree that is built node by node equals the tree that was read.
func TestAddBelow(t *testing.T) {
	var want cct.Tree[string]
	want.AddNew([]string{"D", "B", "A"}, 3, 2)
	want.AddNew([]string{"C", "A"}, 1, 5)
	want.Add(nil, 7)
	var got cct.Tree[string]
	place := make([]cct.NodeID, want.Len()+1)
	for id, n := range want.Nodes() {
		if id == cct.Root {
			got.Add(nil, n.Self)
			continue
		}
		place[id] = got.AddBelow(place[n.Parent], n.Key, n.Self, n.Entered)
	}
	if got.Len() != want.Len() || got.Total() != want.Total() || got.EdgeTotal() != want.EdgeTotal() {
		t.Fatalf("%d nodes, %d, %d; want %d, %d, %d", got.Len(), got.Total(), got.EdgeTotal(), want.Len(), want.Total(),
			want.EdgeTotal())
	}
	for id, n := range want.Nodes() {
		if g := got.Node(place[id]); g.Key != n.Key || g.Self != n.Self || g.Entered != n.Entered ||
			g.Depth != n.Depth {
			t.Errorf("node %d is %+v, want %+v", id, g, n)
		}
	}

	// A full tree adds weight without room to the parent.
	full := cct.Tree[string]{Limit: 1}
	a := full.AddBelow(cct.Root, "A", 1, 0)
	if at := full.AddBelow(a, "B", 4, 2); at != a || full.Node(a).Self != 5 || full.Total() != 5 ||
		full.Overflow() != 4 || full.EdgeOverflow() != 2 {
		t.Errorf("node %d, %+v, overflow %d and %d", at, full.Node(a), full.Overflow(), full.EdgeOverflow())
	}
}
