// Package flowgraph finds the loops in the control flow graph of a method, reducible or not.
package flowgraph

import (
	"errors"
	"fmt"
	"math"
)

// Bounds of a Graph. Finding its loops takes some 100 ms at most.
const (
	MaxBlocks = 1 << 10
	MaxEdges  = 1 << 13
)

// ErrGraph says that a graph is none: a successor does not exist, a number makes no sense, or a
// bound is passed.
var ErrGraph = errors.New("control flow graph is malformed or too large")

// A Graph is the control flow graph of a method. Block 0 is the entry.
type Graph struct{ Blocks []Block }

// A Block is executed from its beginning to its end.
type Block struct {
	Freq       float64 // how often it is executed, in any unit
	Cost       float64 // cost of one execution, in any unit
	Successors []int
}

// Check returns an error wrapping ErrGraph if the graph is none.
func (g *Graph) Check() error {
	if len(g.Blocks) == 0 || len(g.Blocks) > MaxBlocks {
		return fmt.Errorf("%d blocks: %w", len(g.Blocks), ErrGraph)
	}
	edges := 0
	for i := range g.Blocks {
		b := &g.Blocks[i]
		edges += len(b.Successors)
		if !sensible(b.Freq) || !sensible(b.Cost) {
			return fmt.Errorf("block %d with frequency %g and cost %g: %w", i, b.Freq, b.Cost, ErrGraph)
		}
		for _, s := range b.Successors {
			if s < 0 || s >= len(g.Blocks) {
				return fmt.Errorf("block %d leads to %d of %d: %w", i, s, len(g.Blocks), ErrGraph)
			}
		}
	}
	if edges > MaxEdges {
		return fmt.Errorf("%d edges: %w", edges, ErrGraph)
	}
	return nil
}

// sensible reports whether a number is one that sums of MaxBlocks numbers stay finite with.
func sensible(v float64) bool { return v >= 0 && v <= math.MaxFloat64/MaxBlocks/2 }
