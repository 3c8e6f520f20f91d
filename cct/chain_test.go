package cct_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/cct"
)

type (
	chain     = cct.Chain[string, int]
	chainLink = cct.Link[string, int]
	placement = cct.Placement[string, int]
)

// activations parses a stack in the form of the tests, outermost frame first: "A@10 B:7@50 D@90" is
// D at a depth of 90, called by B from its site 7, called by A from its site 0. Without "@" the
// depth is unknown.
func activations(text string) []cct.Activation[string, int] {
	var as []cct.Activation[string, int]
	for _, word := range strings.Fields(text) {
		var a cct.Activation[string, int]
		word, depth, _ := strings.Cut(word, "@")
		method, site, _ := strings.Cut(word, ":")
		d, _ := strconv.Atoi(depth)
		a.Method, a.Depth = method, uint32(d)
		a.Site, _ = strconv.Atoi(site)
		as = append(as, a)
	}
	slices.Reverse(as)
	return as
}

// linkOf parses a link: "caller leaf", or "leaf" if the caller is unknown.
func linkOf(text string) chainLink {
	as := activations(text)
	l := chainLink{Leaf: as[0]}
	if len(as) > 1 {
		l.Caller = as[1]
	}
	return l
}

// lines formats activations in the form in which they are parsed.
func lines(as []cct.Activation[string, int]) string {
	var words []string
	for i, a := range as {
		word := a.Method
		if a.Site != 0 && i > 0 {
			word += fmt.Sprint(":", a.Site)
		}
		if a.Depth != 0 {
			word += fmt.Sprint("@", a.Depth)
		}
		words = append(words, word)
	}
	slices.Reverse(words)
	return strings.Join(words, " ")
}

// walked returns a chain that has learned these walks with these weights.
func walked(walks map[string]uint64) *chain {
	c := new(chain)
	// the order shows which of equally likely contexts comes first
	for _, text := range slices.Sorted(maps.Keys(walks)) {
		c.Walk(activations(text), walks[text])
	}
	return c
}

// called returns a chain that has learned these links.
func called(links map[string]uint64) *chain {
	c := new(chain)
	for _, text := range slices.Sorted(maps.Keys(links)) {
		c.Call(linkOf(text), links[text])
	}
	return c
}

// chainFigure6 is the table of Figure 6 of Inoue and Nakatani (OOPSLA 2009), chainWalks6 the tree
// next to it.
var (
	chainFigure6 = map[string]uint64{
		"A@10 B@50":  10,
		"A@10 C@40":  10,
		"B@50 D@90":  20,
		"C@40 D@80":  40,
		"C@40 E@50":  10,
		"D@90 E@100": 80,
	}
	chainWalks6 = map[string]uint64{
		"A@10 B@50":            10,
		"A@10 C@40":            10,
		"A@10 B@50 D@90":       20,
		"A@10 C@40 D@80":       40,
		"A@10 C@40 E@50":       10,
		"A@10 B@50 D@90 E@100": 80,
	}
	// chainWalks7a is the tree of Figure 7(A): B and F have frames of the same size.
	chainWalks7a = map[string]uint64{
		"A@10 B@50 D@90":       10,
		"A@10 F@50 D@90":       20,
		"A@10 B@50 D@90 E@100": 30,
		"A@10 F@50 D@90 E@100": 40,
	}
	// chainWalks7b is the tree of Figure 7(B): B and C are called in either order.
	chainWalks7b = map[string]uint64{
		"A@10 B@50 C@80 D@90 E@100": 25,
		"A@10 C@40 B@80 D@90 E@100": 75,
	}
)

// The zero value is an empty chain.
func TestZeroChain(t *testing.T) {
	var c chain
	for _, text := range []string{"A@1", "A", "A@1 B@2", "A B"} {
		if p := c.Place(linkOf(text)); p.Fit != cct.Unplaced || p.Basis != cct.ByNothing || len(p.Candidates) > 0 {
			t.Errorf("Place(%q) = %+v", text, p)
		}
	}
	if callers, methods := c.ByDepth(linkOf("A@1").Leaf); callers != (cct.Agreement{}) || methods != callers {
		t.Errorf("ByDepth = %v, %v", callers, methods)
	}
	if stats := c.Stats(); stats != (cct.ChainStats{}) {
		t.Errorf("Stats() = %+v", stats)
	}
	c.Purge()
}

// Table 1 of the paper, for its own figures. In Figure 7(A), D has several callers at one depth. It
// has in Figure 7(B), too, but B and C have not, as they are at different depths.
func TestChainStats(t *testing.T) {
	for name, test := range map[string]struct {
		chain *chain
		want  cct.ChainStats
	}{
		"figure 6":        {walked(chainWalks6), cct.ChainStats{Contexts: 6 + 1, Methods: 5, Links: 7}},
		"figure 6, pairs": {called(chainFigure6), cct.ChainStats{Links: 6}},
		"figure 7a":       {walked(chainWalks7a), cct.ChainStats{Contexts: 7, Shared: 2, Methods: 5, Links: 6}},
		"figure 7b":       {walked(chainWalks7b), cct.ChainStats{Contexts: 9, Shared: 2, Methods: 5, Links: 8}},
		"two sites": {walked(map[string]uint64{"A:1@10 B@50": 1, "A:2@10 B@50": 1}),
			cct.ChainStats{Contexts: 3, Methods: 2, Links: 3}},
		"depths not known": {walked(map[string]uint64{"A@10 B": 1, "C@10 B": 1}),
			cct.ChainStats{Contexts: 4, Methods: 3, Links: 4}},
		"outermost and not": {walked(map[string]uint64{"A@10 B@50": 1, "B@50": 1}),
			cct.ChainStats{Contexts: 3, Shared: 2, Methods: 2, Links: 3}},
		"a caller by a link": {walked(map[string]uint64{"A@10 B@50": 1}),
			cct.ChainStats{Contexts: 2, Shared: 1, Methods: 2, Links: 3}},
	} {
		if name == "a caller by a link" {
			test.chain.Call(linkOf("F@10 B@50"), 1)
		}
		if got := test.chain.Stats(); got != test.want {
			t.Errorf("%s: Stats() = %+v, want %+v", name, got, test.want)
		}
	}
}

// A full chain forgets everything and reports it. The stack that filled it is learned.
func TestChainPurgesItself(t *testing.T) {
	for name, c := range map[string]*chain{"contexts": {Limit: 4}, "links": {LinkLimit: 4}} {
		c.Walk(activations("A@10 B@50 C@90"), 1)
		before := linkOf("B@50 C@90")
		p := c.Place(before)
		if c.Generation() != 0 || p.Fit != cct.Unique {
			t.Fatalf("%s: generation %d, %v", name, c.Generation(), p.Fit)
		}
		c.Walk(activations("A@10 B@50 D@90"), 1) // the fourth
		if c.Generation() != 0 {
			t.Errorf("%s: purged at the limit, not above it", name)
		}
		c.Walk(activations("A@10 B@50 E@90"), 1)
		if stats := c.Stats(); stats.Generation != 1 || c.Generation() != 1 || stats.Contexts != 3 || stats.Links != 3 {
			t.Errorf("%s: %+v after one too many", name, stats)
		}
		if got := lines(c.Stack(nil, before, p.Candidates[0])); got != "B@50 C@90" {
			t.Errorf("%s: the stack of a forgotten context is %q", name, got)
		}
		if got := c.Place(before); got.Basis != cct.ByCaller {
			t.Errorf("%s: the link is still known by %v", name, got.Basis)
		}
		if got := c.Place(linkOf("B@50 E@90")); got.Basis != cct.ByLink {
			t.Errorf("%s: what was learned last is known by %v", name, got.Basis)
		}
	}
	c := chain{LinkLimit: 2}
	c.Call(linkOf("A@10 B@50"), 1)
	c.Call(linkOf("A@10 C@50"), 1)
	c.Call(linkOf("A@10 C@50"), 1)
	if c.Generation() != 0 {
		t.Errorf("purged by links that it has room for")
	}
	c.Call(linkOf("A@10 D@50"), 1)
	if stats := c.Stats(); stats.Generation != 1 || stats.Links != 1 {
		t.Errorf("%+v after one link too many", stats)
	}
}

func TestChainRefuses(t *testing.T) {
	c := chain{Limit: 3, LinkLimit: 2}
	c.Walk(activations("A@10 B@50"), 1)
	for i, learned := range []bool{
		c.Walk(nil, 1),
		c.Walk(activations("A@10 B@50 C@90"), 1), // more than links are allowed
		c.Call(linkOf("A@10 B"), 1),
		c.Call(linkOf("A B@50"), 1),
		c.Call(linkOf("B@50"), 1),
	} {
		if learned {
			t.Errorf("%d was learned", i)
		}
	}
	if got, want := c.Stats(), (cct.ChainStats{Contexts: 2, Methods: 2, Links: 2, Refused: 5}); got != want {
		t.Errorf("Stats() = %+v, want %+v", got, want)
	}
	if !c.Walk(activations("A@10 B@50"), 1) || !c.Call(linkOf("A@10 B@50"), 1) {
		t.Errorf("what is known was refused")
	}
}

// Weights saturate: the hottest context does not become cold.
func TestChainWeightsDoNotWrap(t *testing.T) {
	c := walked(map[string]uint64{"A@10 B@50 D@90": 1 << 63, "A@10 F@50 D@90": 1})
	c.Walk(activations("A@10 B@50 D@90"), 1<<63)
	l := linkOf("D@90 X@100")
	if p := c.Place(l); len(p.Candidates) != 2 || p.Candidates[0].Share < 0.999 ||
		c.Stack(nil, l, p.Candidates[0])[2].Method != "B" {
		t.Errorf("%s, want almost all of it through B", placed(c, l, p))
	}
	c = called(map[string]uint64{"B@50 D@90": 1 << 63, "F@50 D@90": 1})
	c.Call(linkOf("B@50 D@90"), 1<<63)
	if p := c.Place(l); len(p.Candidates) != 2 || p.Candidates[0].Share < 0.999 ||
		p.Candidates[0].Via[0].Method != "B" {
		t.Errorf("%s, want almost all of it through B", placed(c, l, p))
	}
}

// Walk must not allocate in the steady state: walks arrive on the goroutine that drains the
// kernel's ring.
func TestWalkDoesNotAllocate(t *testing.T) {
	var c cct.Chain[int, int]
	stacks := chainStacks(60, 4)
	allocs := testing.AllocsPerRun(100, func() {
		for _, s := range stacks {
			c.Walk(s, 1)
		}
		c.Call(cct.Link[int, int]{Leaf: stacks[0][0], Caller: stacks[0][1]}, 1)
	})
	if allocs != 0 {
		t.Errorf("%v allocations per run", allocs)
	}
}

// chainStacks returns n stacks with that many frames which differ in their two innermost ones.
func chainStacks(frames, n int) [][]cct.Activation[int, int] {
	stacks := make([][]cct.Activation[int, int], n)
	for i := range stacks {
		for j := range frames {
			a := cct.Activation[int, int]{Method: j, Site: 3 * j, Depth: uint32(64 * (frames - j))}
			if j < 2 {
				a.Method += 1000 + 2*i
			}
			stacks[i] = append(stacks[i], a)
		}
	}
	return stacks
}

func BenchmarkChainWalk(b *testing.B) {
	for _, distinct := range []int{1, 4, 1000} {
		b.Run(fmt.Sprintf("frames=60/distinct=%d", distinct), func(b *testing.B) {
			benchmarkWalks(b, chainStacks(60, distinct))
		})
	}
	// Contexts that share nothing, as from threads of different pools.
	b.Run("frames=60/disjoint=16", func(b *testing.B) {
		stacks := chainStacks(60, 16)
		for i, s := range stacks {
			for j := range s {
				s[j].Depth += uint32(8 * i)
			}
		}
		benchmarkWalks(b, stacks)
	})
}

func benchmarkWalks(b *testing.B, stacks [][]cct.Activation[int, int]) {
	var c cct.Chain[int, int]
	for _, s := range stacks {
		c.Walk(s, 1)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		c.Walk(stacks[i%len(stacks)], 1)
	}
}

func BenchmarkChainPlace(b *testing.B) {
	for _, contexts := range []int{1, 2, 16, 1000} {
		b.Run(fmt.Sprintf("contexts=%d", contexts), func(b *testing.B) {
			var c cct.Chain[int, int]
			stacks := chainStacks(60, 1000)
			for i, s := range stacks {
				s[0].Method, s[1].Method = i, i // the same for each block of contexts
				if contexts > 1 {
					s[0].Method, s[1].Method, s[2].Method = i/contexts, i/contexts, i%contexts
				}
				c.Walk(s, uint64(i+1))
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				s := stacks[i%len(stacks)]
				if p := c.Place(cct.Link[int, int]{Leaf: s[0], Caller: s[1]}); len(p.Candidates) == 0 {
					b.Fatal("unplaced")
				}
			}
		})
	}
}
