package cct_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/cct"
)

// tree builds a tree from lines such as "A B D": outermost frame first, as the papers draw paths.
func tree(contexts map[string]uint64) *cct.Tree[string] {
	t := new(cct.Tree[string])
	for context, weight := range contexts {
		t.Add(stack(context), weight)
	}
	return t
}

// stack converts a path, outermost frame first, to the order in which stacks are sampled.
func stack(path string) []string {
	s := strings.Fields(path)
	slices.Reverse(s)
	return s
}

// path is the inverse of stack.
func path(stack []string) string {
	s := slices.Clone(stack)
	slices.Reverse(s)
	return strings.Join(s, " ")
}

// contexts returns what the tree was built from: every context with its own weight.
func contexts(t *cct.Tree[string]) map[string]uint64 {
	m := make(map[string]uint64)
	for id, n := range t.Nodes() {
		if n.Self > 0 {
			m[path(t.Stack(id))] += n.Self
		}
	}
	return m
}

// entered returns how often every context was entered, without those at 0.
func entered(t *cct.Tree[string]) map[string]uint64 {
	m := make(map[string]uint64)
	for id, n := range t.Nodes() {
		if n.Entered > 0 {
			m[path(t.Stack(id))] += n.Entered
		}
	}
	return m
}

func identity(key string) string { return key }

// figure6 is the calling context tree of Figure 6 of Inoue and Nakatani (OOPSLA 2009). The paper
// builds it from callers and stack depths, these tests from whole stacks, with the number of
// samples of each edge as the weight of its callee.
var figure6 = map[string]uint64{
	"A B":     10,
	"A C":     10,
	"A B D":   20,
	"A C D":   40,
	"A C E":   10,
	"A B D E": 80,
}

// figure7a is the tree of Figure 7(A), which cannot be built from depths alone: B and F have frames
// of the same size.
var figure7a = map[string]uint64{
	"A B D":   10,
	"A F D":   20,
	"A B D E": 30,
	"A F D E": 40,
}

// recursive has a method that calls itself, and two that call each other.
var recursive = map[string]uint64{
	"main":                  1,
	"main fib":              2,
	"main fib fib":          3,
	"main fib fib fib":      4,
	"main ping":             5,
	"main ping pong":        6,
	"main ping pong ping":   7,
	"main ping pong ping x": 8,
}

// randomTree has stacks of few distinct keys, so that they share frames and recur.
func randomTree(r *rand.Rand, adds int) (*cct.Tree[string], map[string]uint64) {
	t, want := new(cct.Tree[string]), make(map[string]uint64)
	for range adds {
		s := make([]string, r.IntN(12))
		for i := range s {
			s[i] = string(rune('a' + r.IntN(4)))
		}
		w := r.Uint64N(100) + 1
		t.Add(s, w)
		want[path(s)] += w
	}
	return t, want
}

// A guest calls and returns at random. It marks the sampled frames, as Whaley's profiler marks
// stacks.
type guest struct {
	frames  []activation      // outermost first
	entered map[string]uint64 // activations that were sampled, by context
	tree    *cct.Tree[string] // the tree of the samples
}

type activation struct {
	method string
	marked bool
}

// run makes some steps, each a call, a return or a sample. Returned activations are visible in
// samples only.
func (g *guest) run(r *rand.Rand, steps int) {
	for range steps {
		switch n := r.IntN(5); {
		case n < 2 && len(g.frames) < 12:
			g.frames = append(g.frames, activation{method: string(rune('a' + r.IntN(4)))})
		case n < 4 && len(g.frames) > 0:
			g.frames = g.frames[:len(g.frames)-1]
		default:
			g.sample(r.Uint64N(3))
		}
	}
}

func (g *guest) sample(weight uint64) {
	var methods []string
	fresh := 0
	for i := range g.frames {
		frame := &g.frames[i]
		methods = append(methods, frame.method)
		if !frame.marked {
			frame.marked = true
			fresh++
			g.entered[strings.Join(methods, " ")]++
		}
	}
	slices.Reverse(methods)
	g.tree.AddNew(methods, fresh, weight)
}

// randomGuest returns a guest that has run for some steps and was sampled into tree.
func randomGuest(r *rand.Rand, tree *cct.Tree[string], steps int) *guest {
	g := &guest{entered: make(map[string]uint64), tree: tree}
	g.run(r, steps)
	return g
}

func sum(weights map[string]uint64) (total uint64) {
	for _, weight := range weights {
		total += weight
	}
	return total
}

func eachRandomTree(t *testing.T, f func(t *testing.T, r *rand.Rand, tree *cct.Tree[string], want map[string]uint64)) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 0))
		tree, want := randomTree(r, 200)
		f(t, r, tree, want)
		if t.Failed() {
			t.Fatalf("with seed %d", seed)
		}
	}
}
