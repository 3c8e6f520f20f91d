package placement

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/timing/flowgraph"
)

// graph makes a graph of lines: frequency, cost, successors.
func graph(blocks ...[]float64) *flowgraph.Graph {
	g := &flowgraph.Graph{}
	for _, b := range blocks {
		block := flowgraph.Block{Freq: b[0], Cost: b[1]}
		for _, s := range b[2:] {
			block.Successors = append(block.Successors, int(s))
		}
		g.Blocks = append(g.Blocks, block)
	}
	return g
}

var testOptions = Options{Invocations: 0.05, Target: 0.1, Distance: 50}

// The graphs of figure 3 are images, without numbers in the text that is at hand: these have its
// three shapes, of rarely invoked methods whose loops are all tight.
func TestSelectFigure3(t *testing.T) {
	for _, test := range []struct {
		name string
		g    *flowgraph.Graph
	}{
		{"one block", graph([]float64{1, 200, 1}, []float64{1000, 20, 1, 2}, []float64{1, 200})},
		{"a choice in the loop", graph([]float64{1, 200, 1}, []float64{1000, 10, 2, 3}, []float64{600, 30, 4},
			[]float64{400, 35, 4},
			[]float64{1000, 5, 1, 5}, []float64{1, 100})},
		{"one loop after another", graph([]float64{1, 90, 1}, []float64{500, 15, 1, 2}, []float64{1, 90, 3},
			[]float64{500, 25, 4, 5},
			[]float64{500, 10, 3}, []float64{1, 90})},
	} {
		t.Run(test.name, func(t *testing.T) {
			if points, why := Select(test.g, testOptions); len(points) != 0 || why != Tight {
				t.Errorf("%v: %s", points, why)
			}
		})
	}
}

func TestSelect(t *testing.T) {
	inner := [][]float64{{1, 10, 1}, {10, 100, 2}, {1000, 20, 2, 3}, {10, 5, 1, 4}, {1, 10}}
	for _, test := range []struct {
		name   string
		g      *flowgraph.Graph
		opt    Options
		blocks []int
		why    Verdict
	}{
		{"often invoked", graph([]float64{100, 1, 1}, []float64{200, 100, 1, 2}, []float64{100, 1}), testOptions, nil,
			Invoked},
		{"no loop", graph([]float64{0, 1, 1}, []float64{1, 1}), testOptions, nil, NoLoop},
		{"never executed", graph([]float64{0, 1, 1}, []float64{0, 1, 1}), testOptions, nil, NeverExecuted},
		{"long body", graph([]float64{1, 1, 1}, []float64{1000, 30, 2}, []float64{1000, 21, 1, 3}, []float64{1, 1}),
			testOptions, []int{1}, Chosen},
		{"at the threshold", graph([]float64{1, 1, 1}, []float64{1000, 30, 2}, []float64{1000, 20, 1, 3},
			[]float64{1, 1}), testOptions, nil, Tight},
		// The inner loop is tight. The outer one's head is rare: with a lower target it is chosen.
		{"tight inside", graph(inner...), testOptions, nil, Tight},
		{"long outside", graph(inner...), Options{0.05, 0.009, 50}, []int{1}, Chosen},
		// The block nearest to the target is on a short way around: the rare branch makes no timing
		// safe that it does not lie on.
		{"short cut", graph([]float64{1, 1, 1}, []float64{1000, 10, 2, 3}, []float64{900, 100, 1},
			[]float64{100, 10, 1, 4}, []float64{1, 1}),
			Options{0.05, 0.04, 50}, []int{2}, Chosen},
		// Two loops are needed for the target, and the blocks of one would be too near to each
		// other.
		{"two loops", graph([]float64{1, 1, 1}, []float64{400, 60, 1, 2}, []float64{1, 1, 3}, []float64{500, 30, 4},
			[]float64{500, 30, 3, 5}, []float64{1, 1}),
			Options{0.05, 0.28, 50}, []int{1}, Chosen},
		{"irreducible", graph([]float64{1, 1, 1, 2}, []float64{500, 40, 2}, []float64{500, 40, 1, 3}, []float64{1, 1}),
			testOptions, []int{1}, Chosen},
		{"unreachable loop", graph([]float64{1, 1, 1}, []float64{1, 1}, []float64{1000, 100, 2}), testOptions, nil,
			NoLoop},
		{"entry in a loop", graph([]float64{0.1, 1, 1}, []float64{50, 100, 0, 1}), Options{0.05, 0.1, 50}, []int{1},
			Chosen},
		{"malformed", graph([]float64{1, 1, 7}), testOptions, nil, Malformed},
		{"not a number", graph([]float64{math.NaN(), 1}), testOptions, nil, Malformed},
		{"no blocks", &flowgraph.Graph{}, testOptions, nil, Malformed},
	} {
		t.Run(test.name, func(t *testing.T) {
			points, why := Select(test.g, test.opt)
			var blocks []int
			for _, p := range points {
				blocks = append(blocks, p.Block)
			}
			if why != test.why || !slices.Equal(blocks, test.blocks) {
				t.Errorf("%v: %s; want %v: %s", points, why, test.blocks, test.why)
			}
		})
	}
}

// The largest graphs that nest deepest, or have the most edges, take no longer than a moment.
func TestSelectBound(t *testing.T) {
	nested := &flowgraph.Graph{Blocks: make([]flowgraph.Block, flowgraph.MaxBlocks)}
	for i := range nested.Blocks {
		nested.Blocks[i] = flowgraph.Block{Freq: float64(i), Cost: 0.01, Successors: []int{min(i+1, flowgraph.MaxBlocks-1),
			flowgraph.MaxBlocks - 1 - i}}
	}
	dense := &flowgraph.Graph{Blocks: make([]flowgraph.Block, flowgraph.MaxBlocks)}
	for i := range dense.Blocks {
		dense.Blocks[i] = flowgraph.Block{Freq: float64(i % 7), Cost: 0.01}
		for k := range flowgraph.MaxEdges / flowgraph.MaxBlocks {
			dense.Blocks[i].Successors = append(dense.Blocks[i].Successors, (i*31+k*k*97+1)%flowgraph.MaxBlocks)
		}
	}
	back := &flowgraph.Graph{Blocks: make([]flowgraph.Block, flowgraph.MaxBlocks)}
	for i := range back.Blocks {
		back.Blocks[i] = flowgraph.Block{Freq: float64(i), Cost: 0.01, Successors: []int{min(i+1, flowgraph.MaxBlocks-1), max(1, i-1)}}
	}
	for name, g := range map[string]*flowgraph.Graph{"nested": nested, "dense": dense, "back": back} {
		begin := time.Now()
		_, why := Select(g, Options{Invocations: 1, Target: 1e-6, Distance: 50})
		t.Logf("%s: %s after %v, %d loops", name, why, time.Since(begin), len(g.Loops()))
		if took := time.Since(begin); took > 20*time.Second { // some 100 ms on an idle machine
			t.Errorf("%s: %v", name, took)
		}
	}
}

// Whatever the graph is: points are blocks of their loops, executed, not chosen twice, and far
// enough from each other.
func FuzzSelect(f *testing.F) {
	f.Add([]byte{5, 1, 200, 1, 1, 255, 30, 2, 2, 255, 30, 1, 3, 1, 9, 4, 0})
	f.Add([]byte{3, 0, 0, 0, 0, 1, 2})
	f.Fuzz(func(t *testing.T, data []byte) {
		g := graphOf(data)
		opt := Options{Invocations: 0.5, Target: 0.3, Distance: 40}
		points, why := Select(g, opt)
		if why == Malformed {
			if g.Check() == nil || points != nil {
				t.Fatalf("%v: %s", points, why)
			}
			return
		}
		loops := g.Loops()
		var sum float64
		for i, p := range points {
			if p.Freq <= 0 || !slices.Contains(loops[p.Loop].Blocks, p.Block) {
				t.Fatalf("point %+v of %+v", p, loops)
			}
			sum += p.Freq
			distances := newPaths(g, false).from(p.Block)
			for k, q := range points {
				if k != i && q.Block == p.Block || distances[q.Block] <= opt.Distance {
					t.Fatalf("points %+v: %g between %d and %d", points, distances[q.Block], p.Block, q.Block)
				}
			}
		}
		if why == Chosen && sum < opt.Target-1e-9 {
			t.Fatalf("%v: %s", points, why)
		}
		for i, l := range loops {
			if !slices.Contains(l.Blocks, l.Head) || l.Parent >= i {
				t.Fatalf("loop %d of %+v", i, loops)
			}
		}
	})
}

// graphOf makes a graph of any bytes.
func graphOf(data []byte) *flowgraph.Graph {
	g := &flowgraph.Graph{}
	if len(data) == 0 {
		return g
	}
	n := int(data[0])
	data = data[1:]
	for range n {
		if len(data) < 2 {
			break
		}
		b := flowgraph.Block{Freq: float64(data[0]), Cost: float64(data[1])}
		data = data[2:]
		for len(data) >= 2 && len(b.Successors) < 3 && data[0]%3 != 0 {
			b.Successors = append(b.Successors, int(binary.LittleEndian.Uint16(data)>>8)%(n+1))
			data = data[2:]
		}
		g.Blocks = append(g.Blocks, b)
	}
	return g
}
