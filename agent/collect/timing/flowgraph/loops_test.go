package flowgraph

import (
	"fmt"
	"testing"
)

func TestLoops(t *testing.T) {
	// 1 contains 2 and 4; 2 has an inner loop of itself; 6 is irreducible with 7.
	g := graph([]float64{1, 1, 1}, []float64{10, 1, 2}, []float64{100, 1, 2, 3}, []float64{10, 1, 4},
		[]float64{100, 1, 5}, []float64{100, 1, 4, 1, 6, 7},
		[]float64{5, 1, 7}, []float64{9, 1, 6, 8}, []float64{1, 1})
	got := fmt.Sprint(g.Loops())
	if want := "[{1 [1 2 3 4 5] -1 0} {2 [2] 0 1} {4 [4 5] 0 1} {7 [6 7] -1 0}]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// graph makes a graph of lines: frequency, cost, successors.
func graph(blocks ...[]float64) *Graph {
	g := &Graph{}
	for _, b := range blocks {
		block := Block{Freq: b[0], Cost: b[1]}
		for _, s := range b[2:] {
			block.Successors = append(block.Successors, int(s))
		}
		g.Blocks = append(g.Blocks, block)
	}
	return g
}
