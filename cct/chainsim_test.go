package cct_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/cct"
)

// A program has contexts, each with a known probability of being on top of the stack. A frame has
// the size of its method, so that depths coincide as in compiled code.
type program struct {
	contexts [][]cct.Activation[string, int] // innermost frame first
	weights  []float64                       // probability of each context as the leaf
}

// randomProgram calls few methods from few sites, so that methods occur at the same depth below
// several callers, recur, and are called in different orders.
func randomProgram(r *rand.Rand) *program {
	const methods, sites, levels, contexts = 8, 2, 9, 400
	var size [methods]uint32
	var callees [methods][sites][]int
	for m := range size {
		size[m] = 16 * uint32(2+r.IntN(3))
		for site := range sites {
			for range 1 + r.IntN(2) {
				callees[m][site] = append(callees[m][site], r.IntN(methods))
			}
		}
	}
	p := &program{}
	var run func(method int, depth uint32, callers []cct.Activation[string, int])
	run = func(method int, depth uint32, callers []cct.Activation[string, int]) {
		name := string(rune('a' + method))
		p.contexts = append(p.contexts, append([]cct.Activation[string, int]{{Method: name, Depth: depth}}, callers...))
		p.weights = append(p.weights, math.Exp(2*r.NormFloat64())) // a few are hot
		for site, targets := range callees[method] {
			seen := map[int]bool{}
			for _, target := range targets {
				if seen[target] || len(callers) == levels || len(p.contexts) == contexts || r.IntN(4) == 0 {
					continue
				}
				seen[target] = true
				at := cct.Activation[string, int]{Method: name, Site: site + 1, Depth: depth}
				run(target, depth+size[method], append([]cct.Activation[string, int]{at}, callers...))
			}
		}
	}
	run(0, 48, nil)
	return p
}

// sample returns n random contexts as a profiler would sample them.
func (p *program) sample(r *rand.Rand, n int) []int {
	var total float64
	for _, w := range p.weights {
		total += w
	}
	samples := make([]int, n)
	for i := range samples {
		at := r.Float64() * total
		for at -= p.weights[samples[i]]; at >= 0 && samples[i]+1 < len(p.weights); at -= p.weights[samples[i]] {
			samples[i]++
		}
	}
	return samples
}

// off returns by how much a share of n samples may differ from its probability, except once in a
// million: Bernstein's inequality for a sum of n indicators.
func off(probability float64, n int) float64 {
	l := math.Log(2e6) / float64(n)
	return l/3 + math.Sqrt(l*l/9+2*l*probability*(1-probability))
}

// Placements for a program whose contexts are known. Only some of its contexts are ever walked. The
// others appear as links only, as if their full walk had been lost.
func TestPlaceRandomPrograms(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long, on one thread")
	}
	var unique, ambiguous, byCaller, unplaced int
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 6))
		p := randomProgram(r)
		hidden := make(map[string]bool)
		for _, context := range p.contexts {
			if len(context) > 2 && r.IntN(5) == 0 {
				hidden[lines(context)] = true
			}
		}
		var c chain
		var (
			onTop  = make(map[string]int)  // walks, by context
			linked = make(map[string]int)  // walks, by link on top
			known  = make(map[string]bool) // contexts that were walked, those of callers included
		)
		for _, i := range p.sample(r, 3000) {
			context := p.contexts[i]
			if hidden[lines(context)] {
				continue
			}
			c.Walk(context, 1)
			onTop[lines(context)]++
			linked[lines(context[:min(2, len(context))])]++
			for level := range context {
				known[lines(context[level:])] = true
			}
		}
		// The walked contexts, and all contexts, that end with the same link or the same frame.
		var (
			byLink, byFrame     = make(map[string][]int), make(map[string][]int)
			knownLink, allKnown = make(map[string]int), make(map[string]bool)
		)
		for i, context := range p.contexts {
			link, frame := lines(context[:min(2, len(context))]), lines(context[:1])
			if byLink[link] = append(byLink[link], i); known[lines(context)] {
				knownLink[link]++
			}
			if _, met := allKnown[frame]; !met {
				allKnown[frame] = true
			}
			allKnown[frame] = allKnown[frame] && known[lines(context)]
			byFrame[frame] = append(byFrame[frame], i)
		}

		for i, context := range p.contexts {
			if len(context) < 2 {
				continue
			}
			text := lines(context[:2])
			link := chainLink{Leaf: context[0], Caller: context[1]}
			to := c.Place(link)
			said := placed(&c, link, to)
			fail := func(format string, args ...any) {
				t.Errorf("seed %d, %q is %s\n\t%s", seed, lines(context), said, fmt.Sprintf(format, args...))
			}
			caller := append([]cct.Activation[string, int]{{Method: link.Caller.Method, Depth: link.Caller.Depth}},
				context[2:]...)
			share := -1. // share of the context itself
			for _, candidate := range to.Candidates {
				if lines(c.Stack(nil, link, candidate)) == lines(context) {
					share = candidate.Share
				}
			}
			switch {
			case known[lines(context)] && knownLink[text] == 1:
				unique++
				if to.Fit != cct.Unique || to.Basis != cct.ByLink || share != 1 || !to.Callers.Whole ||
					to.Callers.Levels != len(context)-1 {
					fail("want this one, by link, and %d levels", len(context)-1)
				}
			case known[lines(context)]:
				ambiguous++
				if to.Fit != cct.Ambiguous || to.Basis != cct.ByLink ||
					len(to.Candidates) != min(knownLink[text], cct.MaxCandidates) {
					fail("want %d contexts by link", knownLink[text])
				}
				// Walks can only know this: hidden contexts are never on top in any.
				n := linked[text]
				if n == 0 || knownLink[text] > cct.MaxCandidates {
					break
				}
				var total, own float64
				for _, j := range byLink[text] {
					if !hidden[lines(p.contexts[j])] {
						total += p.weights[j]
					}
				}
				if !hidden[lines(context)] {
					own = p.weights[i] / total
				}
				// The less specific evidence counts as one sample.
				if math.Abs(share-own) > off(own, n)+1/float64(n+1) {
					fail("share %v, want %v after %d samples", share, own, n)
				}
			case known[lines(caller)] && knownLink[text] == 0:
				byCaller++
				if to.Basis != cct.ByCaller || share < 0 && len(byFrame[lines(caller[:1])]) <= cct.MaxCandidates {
					fail("want this one among those of the caller")
				}
			case len(to.Candidates) == 0:
				unplaced++
				if to.Fit != cct.Unplaced || to.Callers != (cct.Agreement{Levels: 1}) {
					fail("of which %+v is known", to.Callers)
				}
			}
			// If the chain has learned all contexts of a caller, the agreement of all candidates
			// holds for everything that it calls.
			if allKnown[lines(caller[:1])] && to.Basis == cct.ByCaller {
				first := c.Stack(nil, link, to.Candidates[0])
				if lines(first[:to.Callers.Levels+1]) != lines(context[:to.Callers.Levels+1]) {
					fail("where they agree upon %d levels", to.Callers.Levels)
				}
			}
		}
	}
	t.Logf("%d unique, %d ambiguous, %d by caller, %d unplaced", unique, ambiguous, byCaller, unplaced)
	if min(unique, ambiguous, byCaller) < 100 || unplaced < 10 {
		t.Errorf("the programs are too simple: %d unique, %d ambiguous, %d by caller, %d unplaced", unique, ambiguous,
			byCaller, unplaced)
	}
}

// Walks with the leaf on top are counted separately, so that shares of a known program are right
// however hot other leaves make the leaf's callers. One in two thousand walks would not show
// otherwise.
func TestShareConverges(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var c chain
	const n, probability = 2000, 0.3
	for range n {
		context := "A@10 B@50 D@90 E@100"
		if r.Float64() < probability {
			context = "A@10 F@50 D@90 E@100"
		}
		c.Walk(activations(context), 1)
		c.Walk(activations("A@10 F@50 D@90 X@100"), 50)
		c.Call(linkOf("F@50 D@90"), 1000)
	}
	l := linkOf("D@90 E@100")
	p := c.Place(l)
	for _, to := range p.Candidates {
		want := 1 - probability
		if c.Stack(nil, l, to)[2].Method == "F" {
			want = probability
		}
		if math.Abs(to.Share-want) > off(want, n)+1./(n+1) {
			t.Errorf("%s, want 0.3 through F", placed(&c, l, p))
		}
	}
	if len(p.Candidates) != 2 {
		t.Errorf("%s, want two contexts", placed(&c, l, p))
	}
}
