// Package placement chooses which loops of a method to time, and at which of their blocks: figure 2 of
// Lau, Arnold, Hind and Calder, A Loop Correlation Technique to Improve Performance Auditing (PACT
// 2007), sections 5.1 to 5.3.
//
//	points, why := placement.Select(&graph, placement.Default)
//
// Where it departs from the paper: loops are those of a forest that exists for all graphs,
// irreducible ones included; a block is chosen once at most; distances to timing points count in
// both directions, since either may follow the other. The entry and the exits of the method are no
// timing points here: they come once in an invocation, and few invocations are the reason to time
// loops. The profiler itself times every loop that has a safepoint; this says where the paper would.
package placement

import (
	"cmp"
	"math"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/timing/flowgraph"
)

// Options are the thresholds of the algorithm.
type Options struct {
	// Invocations is the normalized frequency of the entry above which no loop is timed:
	// invocations suffice.
	Invocations float64
	// Target is the normalized frequency that all timing points together are to have, about.
	Target float64
	// Distance is the least cost between two passages of timing points, exclusive.
	Distance float64
}

// Default are thresholds for costs in units of a simple instruction. The paper does not state its
// own.
var Default = Options{Invocations: 0.05, Target: 0.05, Distance: 50}

// A Point is a block at whose beginning to take the time.
type Point struct {
	Block int
	Loop  int     // index in the result of Graph.Loops
	Freq  float64 // normalized: the part of all block executions
}

// A Verdict says why there are no points, or no more.
type Verdict string

// Verdicts.
const (
	Chosen        Verdict = "the points have the wanted frequency"
	Invoked       Verdict = "invocations are frequent enough"
	NeverExecuted Verdict = "no block was executed"
	NoLoop        Verdict = "no loop is executed often enough"
	Tight         Verdict = "loops are too tight to be timed"
	Malformed     Verdict = "the graph is malformed or too large"
)

// Select is selectLoops of figure 2: the points, in the order of choice, and why there are no more.
func Select(g *flowgraph.Graph, opt Options) ([]Point, Verdict) {
	if g.Check() != nil {
		return nil, Malformed
	}
	sum := 0.
	for i := range g.Blocks {
		sum += g.Blocks[i].Freq
	}
	if sum <= 0 {
		return nil, NeverExecuted
	}
	freq := make([]float64, len(g.Blocks))
	for i := range g.Blocks {
		freq[i] = g.Blocks[i].Freq / sum
	}
	if freq[0] > opt.Invocations {
		return nil, Invoked
	}
	s := newSelection(g, opt, freq)
	target := opt.Target
	for target > 0 {
		point, why := s.findLoop(target)
		if why != Chosen {
			return s.points, why
		}
		s.choose(point)
		target -= point.Freq
	}
	return s.points, Chosen
}

// A selection is a choice under way.
type selection struct {
	opt     Options
	freq    []float64 // normalized, by block
	loops   []flowgraph.Loop
	forward *paths
	back    *paths
	self    []float64 // distances of blocks to themselves, NaN if not known yet
	nearest []float64 // distances to the nearest point, or from it
	chosen  []bool
	points  []Point
}

func newSelection(g *flowgraph.Graph, opt Options, freq []float64) *selection {
	n := len(g.Blocks)
	s := &selection{
		opt: opt, freq: freq, loops: g.Loops(), forward: newPaths(g, false), back: newPaths(g, true),
		self: make([]float64, n), nearest: make([]float64, n), chosen: make([]bool, n),
	}
	for i := range n {
		s.self[i], s.nearest[i] = math.NaN(), math.Inf(1)
	}
	return s
}

// findLoop is findLoop of figure 2: the first loop from the outside that is executed often enough
// and has a block.
func (s *selection) findLoop(target float64) (Point, Verdict) {
	why := NoLoop
	for i := range s.loops {
		if s.freq[s.loops[i].Head] <= target {
			continue
		}
		if block, ok := s.selectBlock(&s.loops[i], target); ok {
			return Point{block, i, s.freq[block]}, Chosen
		}
		why = Tight
	}
	return Point{}, why
}

// selectBlock is selectBlock of figure 2: the block whose frequency is nearest to the target, of
// those that are far enough from themselves and from all points. Blocks that are not executed would
// never give a timing.
func (s *selection) selectBlock(l *flowgraph.Loop, target float64) (int, bool) {
	blocks := slices.DeleteFunc(slices.Clone(l.Blocks), func(b int) bool { return s.chosen[b] || s.freq[b] == 0 })
	slices.SortFunc(blocks, func(a, b int) int {
		return cmp.Or(cmp.Compare(math.Abs(s.freq[a]-target), math.Abs(s.freq[b]-target)), cmp.Compare(a, b))
	})
	for _, b := range blocks {
		if s.nearest[b] > s.opt.Distance && s.toSelf(b) > s.opt.Distance {
			return b, true
		}
	}
	return 0, false
}

func (s *selection) toSelf(b int) float64 {
	if math.IsNaN(s.self[b]) {
		s.self[b] = s.forward.from(b)[b]
	}
	return s.self[b]
}

// choose adds a point.
func (s *selection) choose(p Point) {
	s.points = append(s.points, p)
	s.chosen[p.Block] = true
	for _, distances := range [][]float64{s.forward.from(p.Block), s.back.from(p.Block)} {
		for b, d := range distances {
			s.nearest[b] = min(s.nearest[b], d)
		}
	}
}
