package cct_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

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
	if got, want := tree.Node(viaC), (cct.Node[string]{Key: "E", Self: 2, Parent: 2, Depth: 3}); tree.Node(got.Parent).Key != "C" || got.Self != want.Self || got.Depth != want.Depth {
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

// More children than are kept near: they are found by hash and none is made twice.
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

// Steady state must not allocate: Add runs on the goroutine that drains the kernel's ring.
func TestAddDoesNotAllocate(t *testing.T) {
	var tree cct.Tree[int]
	stacks := benchmarkStacks(30, 4)
	if allocs := testing.AllocsPerRun(100, func() {
		for _, s := range stacks {
			tree.Add(s, 1)
		}
	}); allocs != 0 {
		t.Errorf("%v allocations per run", allocs)
	}
}

// FuzzTree reads stacks from bytes and compares with a plain map: 0 ends a stack, the first byte is the limit.
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
	for _, bench := range []struct{ depth, distinct int }{{30, 1}, {30, 4}, {30, 1000}, {1000, 4}} {
		b.Run(fmt.Sprintf("depth=%d/distinct=%d", bench.depth, bench.distinct), func(b *testing.B) {
			var tree cct.Tree[int]
			stacks := benchmarkStacks(bench.depth, bench.distinct)
			for _, s := range stacks {
				tree.Add(s, 1)
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				tree.Add(stacks[i%len(stacks)], 1)
			}
		})
	}
}
