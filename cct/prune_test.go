package cct_test

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/cct"
)

func TestPrune(t *testing.T) {
	rest := "…"
	for name, test := range map[string]struct {
		rest        *string
		leaveOut    string
		from, wants map[string]uint64
	}{
		"below the caller": {&rest, "B D", map[string]uint64{"A": 1, "A B": 2, "A B C": 4, "A D": 8, "E": 16},
			map[string]uint64{"A": 1, "A …": 14, "E": 16}},
		"into the caller": {nil, "B D", map[string]uint64{"A": 1, "A B": 2, "A B C": 4, "A D": 8, "E": 16},
			map[string]uint64{"A": 15, "E": 16}},
		"outermost": {&rest, "A", map[string]uint64{"": 1, "A": 2, "A E": 4, "E": 8},
			map[string]uint64{"": 1, "…": 6, "E": 8}},
		"pruned before": {&rest, "B", map[string]uint64{"A …": 1, "A B": 2, "A … C": 4},
			map[string]uint64{"A …": 7}},
		"nothing": {&rest, "", map[string]uint64{"A B": 1, "C": 2}, map[string]uint64{"A B": 1, "C": 2}},
		"empty":   {&rest, "A", nil, map[string]uint64{}},
	} {
		t.Run(name, func(t *testing.T) {
			from := tree(test.from)
			pruned, places := from.Prune(test.rest, func(id cct.NodeID) bool {
				return !slices.Contains(strings.Fields(test.leaveOut), from.Node(id).Key)
			})
			if got := contexts(pruned); !maps.Equal(got, test.wants) {
				t.Errorf("contexts = %v, want %v", got, test.wants)
			}
			checkPruned(t, from, pruned, places)
		})
	}
}

// Memory that was used before makes no difference.
func TestPrunePurged(t *testing.T) {
	purged, full := tree(figure6), tree(figure6)
	purged.Purge()
	if places := cct.PruneAll([]*cct.Tree[string]{purged, full}, nil, 1, "…"); len(places) != 2 || purged.Total() != 0 ||
		full.Total() != tree(figure6).Total() {
		t.Errorf("places %v, totals %d and %d", places, purged.Total(), full.Total())
	}
}

// checkPruned checks what is true of each pruned tree: weights are where places say, none is lost,
// and a context that is kept has its stack.
func checkPruned(t *testing.T, from, pruned *cct.Tree[string], places []cct.NodeID) {
	t.Helper()
	if from.Total() != pruned.Total() || len(places) != from.Len()+1 || pruned.Len() > from.Len() {
		t.Fatalf("total %d of %d, %d places of %d contexts, %d are left", pruned.Total(), from.Total(), len(places),
			from.Len(), pruned.Len())
	}
	weights := make([]uint64, pruned.Len()+1)
	for id, n := range from.Nodes() {
		weights[places[id]] += n.Self
		if to := pruned.Node(places[id]); to.Key == n.Key && to.Depth == n.Depth &&
			!slices.Equal(pruned.Stack(places[id]), from.Stack(id)) {
			t.Errorf("%v became %v", from.Stack(id), pruned.Stack(places[id]))
		}
	}
	for id, n := range pruned.Nodes() {
		if n.Self != weights[id] {
			t.Errorf("%v has %d, want %d", pruned.Stack(id), n.Self, weights[id])
		}
		if again := pruned.Add(pruned.Stack(id), 0); again != id {
			t.Errorf("%v is at %d and is found at %d", pruned.Stack(id), id, again)
		}
	}
}

// checkPrunedAll prunes trees, and checks what is kept and what is left out.
func checkPrunedAll(t *testing.T, trees []*cct.Tree[string], limit int) {
	t.Helper()
	const rest = "…"
	var before []cct.Tree[string]
	var all []uint64 // totals of contexts
	for _, tree := range trees {
		before = append(before, *tree)
		all = append(all, tree.Totals()[1:]...)
	}
	places := cct.PruneAll(trees, nil, limit, rest)
	if places == nil != (len(all) <= limit) {
		t.Fatalf("%d contexts, limit %d: places %v", len(all), limit, places != nil)
	}
	if places == nil {
		return
	}
	kept := 0
	least, most := uint64(math.MaxUint64), uint64(0) // weights: least kept, most left out
	for i, tree := range trees {
		checkPruned(t, &before[i], tree, places[i])
		totals := before[i].Totals()
		for id, n := range before[i].Nodes() {
			if to := tree.Node(places[i][id]); id != cct.Root && to.Key != rest {
				kept++
				least = min(least, totals[id])
			} else if id != cct.Root {
				most = max(most, totals[id])
				if up := tree.Node(places[i][n.Parent]); up.Key != rest && to.Parent != places[i][n.Parent] {
					t.Errorf("%v is below %v", before[i].Stack(id), tree.Stack(to.Parent))
				}
			}
		}
	}
	if kept > limit || least <= most {
		t.Errorf("%d contexts are kept, want %d; the lightest has %d, the heaviest left out %d", kept, limit, least, most)
	}
}

func TestPruneAll(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 3))
		var trees []*cct.Tree[string]
		for range r.IntN(4) {
			tree, _ := randomTree(r, r.IntN(100))
			trees = append(trees, tree)
		}
		checkPrunedAll(t, trees, r.IntN(300))
	}
}

// FuzzPruneAll reads the limit and stacks of two trees, each ended by a byte below 16 that is the
// weight.
func FuzzPruneAll(f *testing.F) {
	f.Add(uint8(3), []byte("ab\x01abc\x02d\x03ab\x00"), []byte("x\x01xy\x01"))
	f.Add(uint8(0), []byte("a\x01"), []byte(nil))
	f.Fuzz(func(t *testing.T, limit uint8, a, b []byte) {
		var trees []*cct.Tree[string]
		for _, data := range [][]byte{a, b} {
			tree := new(cct.Tree[string])
			var stack []string
			for _, c := range data {
				if c >= 16 {
					stack = append(stack, string(rune('a'+c%8)))
					continue
				}
				tree.Add(stack, uint64(c))
				stack = nil
			}
			trees = append(trees, tree)
		}
		checkPrunedAll(t, trees, int(limit))
	})
}

// A cutoff keeps the heaviest, and of equal ones the first.
func TestCutoff(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 4))
		weights := make([]float64, r.IntN(50))
		for i := range weights {
			weights[i] = float64(r.IntN(10))
		}
		limit := r.IntN(60)
		c := cct.NewCutoff(slices.Clone(weights), limit)
		var kept, want []float64
		above := 0
		for _, w := range weights {
			if w > c.Least {
				above++
			}
			if c.Keep(w) {
				kept = append(kept, w)
			}
		}
		want = slices.Sorted(slices.Values(weights))
		want = want[max(len(want)-limit, 0):]
		if slices.Sort(kept); !slices.Equal(kept, want) || above > limit {
			t.Fatalf("seed %d: %v are kept, want %v; %d exceed %v", seed, kept, want, above, c.Least)
		}
	}
}
