package cct

import "math"

// Prune returns a tree of the contexts that keep wants, and the places in it of the contexts of t,
// by NodeID. keep is called for callers before their callees, and not for what is below a context
// that is left out. What is left out counts for its nearest kept caller, or for a child of that
// with the key rest if it is not nil: so the total stays, and nobody seems to have called what they
// did not. Contexts of t that have this key already join what is left out below the same caller.
// Edges into what is left out lose their weight. t stays as it is.
func (t *Tree[K]) Prune(rest *K, keep func(NodeID) bool) (pruned *Tree[K], places []NodeID) {
	pruned, places = &Tree[K]{Limit: t.Limit}, make([]NodeID, t.Len()+1)
	if t.nodes.len() == 0 {
		return pruned, places
	}
	kept, cut := make([]bool, t.nodes.len()), make([]bool, t.nodes.len()) // cut: something below it is left out
	kept[Root] = true
	size := 1
	for id := NodeID(1); id < t.nodes.used; id++ {
		switch n := t.nodes.at(id); {
		case !kept[n.parent]:
		case (rest == nil || n.key != *rest) && keep(NodeID(id)):
			kept[id] = true
			size++
		case rest != nil && !cut[n.parent]:
			cut[n.parent] = true
			size++
		}
	}
	pruned.nodes.reserve(size)
	pruned.Add(nil, t.nodes.at(Root).self)
	for id := NodeID(1); id < t.nodes.used; id++ {
		n := t.nodes.at(id)
		up := places[n.parent]
		if kept[id] {
			places[id] = pruned.AddBelow(up, n.key, n.self, n.entered)
			continue
		}
		if kept[n.parent] && rest != nil {
			up = pruned.AddBelow(up, *rest, 0, 0)
		}
		places[id] = up
		pruned.nodes.at(up).self += n.self
		pruned.total.self += n.self
	}
	pruned.overflow.self += t.overflow.self
	pruned.overflow.entered += t.overflow.entered
	return pruned, places
}

// PruneAll bounds the contexts of several trees together, each of which becomes a smaller one: see
// Prune. Those that are heaviest together with their callees are kept: at most limit, and of equal
// ones all or none. Below each of them, and below each root, there is at most one more with the key
// rest. own returns what the contexts of a tree weigh by themselves, by NodeID and none negative,
// and does not need it again; nil is Node.Self. places are by tree, and nil if there are no more
// than limit contexts without those of the key rest: then nothing changes.
func PruneAll[K comparable](
	trees []*Tree[K], own func(tree int) []float64, limit int, rest K,
) (places [][]NodeID) {
	contexts := 0
	for _, t := range trees {
		contexts += t.Len()
	}
	if contexts <= limit {
		return nil
	}
	totals, all := make([][]float64, len(trees)), make([]float64, 0, contexts)
	for i, t := range trees {
		if own != nil {
			totals[i] = own(i)
		} else {
			totals[i] = make([]float64, t.Len()+1)
			for id := range t.nodes.used {
				totals[i][id] = float64(t.nodes.at(id).self)
			}
		}
		t.AddUp(totals[i])
		for id := NodeID(1); id < t.nodes.used; id++ {
			if t.nodes.at(id).key != rest {
				all = append(all, totals[i][id])
			}
		}
	}
	if len(all) <= limit {
		return nil
	}
	least := NewCutoff(all, limit).Least
	places = make([][]NodeID, len(trees))
	for i, t := range trees {
		pruned, place := t.Prune(&rest, func(id NodeID) bool { return totals[i][id] > least })
		*t, places[i] = *pruned, place
	}
	return places
}

// AddUp adds to the weight of each context, by NodeID, those of its descendants.
func (t *Tree[K]) AddUp(weights []float64) {
	for id := t.Len(); id > 0; id-- { // children before parents
		weights[t.nodes.at(NodeID(id)).parent] += weights[id]
	}
}

// A Cutoff separates the heaviest of some weights from the others.
type Cutoff struct {
	Least float64 // no more than the limit exceed it; -Inf if all are kept
	ties  int     // how many that equal it there is room for as well
}

// NewCutoff returns the one that keeps limit of the weights, or all if they are no more. It changes
// their order.
func NewCutoff(weights []float64, limit int) *Cutoff {
	if len(weights) <= limit {
		return &Cutoff{Least: math.Inf(-1)}
	}
	c := &Cutoff{Least: largest(weights, limit), ties: limit}
	for _, w := range weights {
		if w > c.Least {
			c.ties--
		}
	}
	return c
}

// Keep reports whether a weight is kept, and is called once for each: of those that equal Least, it
// keeps the first ones. To keep none of these, compare with Least.
func (c *Cutoff) Keep(weight float64) bool {
	if weight == c.Least && c.ties > 0 {
		c.ties--
		return true
	}
	return weight > c.Least
}

// largest returns the weight that has n others before it in descending order: Hoare's selection
// ("Algorithm 65: Find", CACM 1961). It changes their order.
func largest(all []float64, n int) float64 {
	for from, to := 0, len(all)-1; from < to; {
		pivot := all[(from+to)/2]
		i, j := from, to
		for i <= j {
			for all[i] > pivot {
				i++
			}
			for all[j] < pivot {
				j--
			}
			if i <= j {
				all[i], all[j] = all[j], all[i]
				i++
				j--
			}
		}
		switch {
		case n <= j:
			to = j
		case n >= i:
			from = i
		default:
			return all[n]
		}
	}
	return all[n]
}
