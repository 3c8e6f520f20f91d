package cct

import "iter"

// A Profile gives weights to things and can be laid beside another of its kind: a *Tree gives them to contexts, its
// EdgeProfile to its edges and its JointProfile to both, a *Graph to the edges of calls, Weights to whatever they are
// keyed by. The measures on two profiles are defined on this.
type Profile[P any] interface {
	// Beside yields, for each thing that has a weight in either profile, the weight here and the weight there, in no
	// particular order. Both are not negative, and one is 0 where only the other profile knows the thing.
	Beside(other P) iter.Seq2[float64, float64]
}

// Weights is the simplest profile: the weight of each key, none negative.
type Weights[K comparable] map[K]float64

// Beside pairs the weights of equal keys.
func (w Weights[K]) Beside(other Weights[K]) iter.Seq2[float64, float64] {
	return func(yield func(float64, float64) bool) {
		for key, weight := range w {
			if there := other[key]; (weight > 0 || there > 0) && !yield(weight, there) {
				return
			}
		}
		for key, there := range other {
			if _, here := w[key]; !here && there > 0 && !yield(0, there) {
				return
			}
		}
	}
}

// Beside pairs the weights of equal edges. What found no room in either graph is left out.
func (g *Graph[M, S]) Beside(other *Graph[M, S]) iter.Seq2[float64, float64] {
	return Weights[Edge[M, S]](g.edges).Beside(other.edges)
}

// Beside pairs the weights of equal contexts, which are equal if their whole stacks are. Contexts that only have
// descendants with a weight, and none of their own, are left out.
func (t *Tree[K]) Beside(other *Tree[K]) iter.Seq2[float64, float64] {
	return t.beside(other, weights.ofSelf)
}

// beside pairs each of these weights of equal contexts.
func (t *Tree[K]) beside(other *Tree[K], each ...func(weights) uint64) iter.Seq2[float64, float64] {
	return func(yield func(float64, float64) bool) {
		pair := func(a, b weights) bool {
			for _, of := range each {
				if here, there := of(a), of(b); (here > 0 || there > 0) && !yield(float64(here), float64(there)) {
					return false
				}
			}
			return true
		}
		twins, paired := t.twins(other), make([]bool, len(other.nodes))
		for id := range t.nodes {
			var there weights
			if twin := twins[id]; (twin != Root || NodeID(id) == Root) && len(other.nodes) > 0 {
				there, paired[twin] = other.nodes[twin].weights, true
			}
			if !pair(t.nodes[id].weights, there) {
				return
			}
		}
		for id := range other.nodes {
			if !paired[id] && !pair(weights{}, other.nodes[id].weights) {
				return
			}
		}
	}
}

// twins returns, by NodeID of t, the same context in other: Root for none, and for Root.
func (t *Tree[K]) twins(other *Tree[K]) []NodeID {
	twins := make([]NodeID, len(t.nodes))
	if len(other.nodes) == 0 {
		return twins
	}
	for id := 1; id < len(t.nodes); id++ {
		n := &t.nodes[id]
		// A context that other does not have has no descendants there either.
		if parent := twins[n.parent]; parent != Root || n.parent == Root {
			twins[id], _, _ = other.find(parent, n.key)
		}
	}
	return twins
}
