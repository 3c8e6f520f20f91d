package cct_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/cct"
)

func TestHot(t *testing.T) {
	for _, test := range []struct {
		name     string
		contexts map[string]uint64
		want     []cct.Entry[string]
	}{
		{"inoue figure 6", figure6, []cct.Entry[string]{
			{"E", 90, 90}, {"D", 60, 140}, {"B", 10, 110}, {"C", 10, 60}, {"A", 0, 170},
		}},
		{"inoue figure 7a", figure7a, []cct.Entry[string]{
			{"E", 70, 70}, {"D", 30, 100}, {"A", 0, 100}, {"F", 0, 60}, {"B", 0, 40},
		}},
		// Of 36, fib is on the stack in 2+3+4 and ping in 5+6+7+8; each stack counts once however
		// deep they are.
		{"recursion", recursive, []cct.Entry[string]{
			{"ping", 12, 26}, {"fib", 9, 9}, {"x", 8, 8}, {"pong", 6, 21}, {"main", 1, 36},
		}},
		{"frames only", map[string]uint64{"": 7, "A": 1}, []cct.Entry[string]{{"A", 1, 1}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := cct.Hot(tree(test.contexts), identity)
			cct.SortEntries(got, cmp.Compare[string])
			if !slices.Equal(got, test.want) {
				t.Errorf("Hot = %v, want %v", got, test.want)
			}
		})
	}
}

// Grouping is recursion too: a package that calls itself through another method is counted once.
func TestHotGrouped(t *testing.T) {
	tree := tree(map[string]uint64{"app.main": 1, "app.main util.a": 2, "app.main util.a util.b": 4,
		"app.main util.a app.call util.b": 8})
	got := cct.Hot(tree, func(method string) string {
		pkg, _, _ := strings.Cut(method, ".")
		return pkg
	})
	if want := []cct.Entry[string]{{"util", 14, 14}, {"app", 1, 15}}; !slices.Equal(got, want) {
		t.Errorf("Hot = %v, want %v", got, want)
	}
}

// Against the definition: for each stack, each distinct key once.
func TestHotRandom(t *testing.T) {
	eachRandomTree(t, func(t *testing.T, _ *rand.Rand, tree *cct.Tree[string], want map[string]uint64) {
		self, total := make(map[string]uint64), make(map[string]uint64)
		for context, weight := range want {
			frames := stack(context)
			if len(frames) > 0 {
				self[frames[0]] += weight
			}
			slices.Sort(frames)
			for _, key := range slices.Compact(frames) {
				total[key] += weight
			}
		}
		for _, e := range cct.Hot(tree, identity) {
			if e.Self != self[e.Key] || e.Total != total[e.Key] {
				t.Errorf("%+v, want self %d, total %d", e, self[e.Key], total[e.Key])
			}
		}
	})
}

// A stack a hundred thousand frames deep neither overflows ours nor takes quadratic time.
func TestHotDeep(t *testing.T) {
	var tree cct.Tree[int]
	deep := make([]int, 100_000)
	tree.Add(deep, 1)
	if got := cct.Hot(&tree, func(k int) int { return k }); len(got) != 1 ||
		got[0] != (cct.Entry[int]{Key: 0, Self: 1, Total: 1}) {
		t.Errorf("Hot = %v", got)
	}
}

// checkHottest compares with all nodes that have a weight, sorted.
func checkHottest(t *testing.T, tree *cct.Tree[string]) {
	t.Helper()
	var want []cct.NodeID
	for id, n := range tree.Nodes() {
		if id != cct.Root && n.Self > 0 {
			want = append(want, id)
		}
	}
	slices.SortFunc(want, func(a, b cct.NodeID) int {
		return cmp.Or(cmp.Compare(tree.Node(b).Self, tree.Node(a).Self), cmp.Compare(a, b))
	})
	for _, n := range []int{-1, 0, 1, tree.Len() - 1, tree.Len(), tree.Len() + 1} {
		if got, want := tree.Hottest(n), want[:min(max(n, 0), len(want))]; !slices.Equal(got, want) {
			t.Fatalf("of %d nodes: Hottest(%d) = %v, want %v", tree.Len(), n, got, want)
		}
	}
}

func TestHottestContexts(t *testing.T) {
	tree := tree(figure6)
	tree.Add(nil, 1000) // without a method
	var got []string
	for _, id := range tree.Hottest(2) {
		got = append(got, path(tree.Stack(id)))
	}
	if want := []string{"A B D E", "A C D"}; !slices.Equal(got, want) {
		t.Errorf("Hottest(2) = %q, want %q", got, want)
	}
}

// After any sequence of operations on a tree. The weights are small, so that many are equal.
func TestHottestIsExact(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 4))
		tree := cct.Tree[string]{Limit: 20 + r.IntN(200)}
		g := randomGuest(r, &tree, 0)
		for range 300 {
			switch r.IntN(100) {
			case 0:
				tree.Purge()
			case 1:
				var other cct.Tree[string]
				randomGuest(r, &other, 100)
				tree.Merge(&other)
			case 2:
				tree.Merge(&tree)
			default:
				g.run(r, 3)
			}
			checkHottest(t, &tree)
		}
		mapped := cct.Map(&tree, func(key string) []string {
			return map[string][]string{"b": {"x", "y"}, "c": {"a"},
				"d": {"a"}}[key]
		})
		checkHottest(t, mapped)
		if t.Failed() {
			t.Fatalf("with seed %d", seed)
		}
	}
}
