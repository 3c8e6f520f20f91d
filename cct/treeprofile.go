package cct

import "iter"

// An EdgeProfile gives the edges of a tree their weights, where the tree as a Profile gives its contexts theirs. Edges
// are equal if they lead to equal contexts.
type EdgeProfile[K comparable] struct{ tree *Tree[K] }

// EdgeProfile returns a view of t's edges.
func (t *Tree[K]) EdgeProfile() EdgeProfile[K] { return EdgeProfile[K]{t} }

// Beside pairs the weights of equal edges.
func (p EdgeProfile[K]) Beside(other EdgeProfile[K]) iter.Seq2[float64, float64] {
	return p.tree.beside(other.tree, weights.ofEntered)
}

// A JointProfile gives weights to the contexts and to the edges of a tree. The Correlation of two is the precision that
// Whaley states for partial calling context trees (Java Grande 2000, results): his data are the counts of nodes and of
// edges together, which are equal if their paths from the root are. As his nodes count samples, the weight of a sample
// should be 1 here: where contexts weigh nanoseconds, edges do not matter beside them.
type JointProfile[K comparable] struct{ tree *Tree[K] }

// JointProfile returns a view of t's contexts and edges.
func (t *Tree[K]) JointProfile() JointProfile[K] { return JointProfile[K]{t} }

// Beside pairs the weights of equal contexts and those of equal edges.
func (p JointProfile[K]) Beside(other JointProfile[K]) iter.Seq2[float64, float64] {
	return p.tree.beside(other.tree, weights.ofSelf, weights.ofEntered)
}
