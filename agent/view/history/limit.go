package history

import (
	"math"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

// limitThreads makes the rarest contexts of CPU time one, if there are more than limit.
func (w *window) limitThreads(limit int) {
	contexts := 0
	for _, p := range w.processes {
		for i := range p.threads {
			contexts += len(p.threads[i].tree) - 1
		}
	}
	if contexts <= limit {
		return
	}
	var totals [][]uint64
	all := make([]uint64, 0, contexts)
	for _, p := range w.processes {
		for i := range p.threads {
			of := selves(p.threads[i].tree)
			addUp(of, p.threads[i].tree)
			totals, all = append(totals, of), append(all, of[1:]...)
		}
	}
	least := leastOf(all, limit)
	for _, p := range w.processes {
		for i := range p.threads {
			p.threads[i].tree, _ = prune(p.threads[i].tree, totals[0], least)
			totals = totals[1:]
		}
	}
}

// limitEvents does the same with contexts of events, and with rows.
func (w *window) limitEvents(kind profile.EventKind, limit int) {
	var (
		list             []*events
		totals           [][]uint64
		contexts, counts []uint64
		most             int
	)
	for _, p := range w.processes {
		for i := range p.events {
			if e := &p.events[i]; e.kind == kind {
				list = append(list, e)
				most += max(len(e.tree)-1, len(e.rows))
			}
		}
	}
	if most <= limit {
		return
	}
	for _, e := range list {
		of := make([]uint64, len(e.tree))
		for i := range e.rows {
			n := e.rows[i].weight(kind)
			of[e.rows[i].context] += n
			counts = append(counts, n)
		}
		addUp(of, e.tree)
		totals, contexts = append(totals, of), append(contexts, of[1:]...)
	}
	leastContext, leastRow := leastOf(contexts, limit), leastOf(counts, limit)
	if leastContext == 0 && leastRow == 0 {
		return
	}
	for i, e := range list {
		e.prune(totals[i], leastContext, leastRow)
	}
}

// prune merges contexts and rows that do not exceed the least. Those of other rows stay apart from
// each other.
func (e *events) prune(totals []uint64, leastContext, leastRow uint64) {
	tree, place := prune(e.tree, totals, leastContext)
	var rareOnes cct.NodeID // the context of rare rows; 0 if there is none yet
	for id := 1; id < len(tree) && rareOnes == 0; id++ {
		if tree[id].parent == cct.Root && tree[id].frame == rare {
			rareOnes = cct.NodeID(id)
		}
	}
	index := make(map[rowKey]int)
	kept := e.rows[:0]
	for i := range e.rows {
		r := e.rows[i]
		r.context = place[r.context]
		if r.weight(e.kind) <= leastRow {
			if rareOnes == 0 {
				rareOnes = cct.NodeID(len(tree))
				tree = append(tree, node{parent: cct.Root, frame: rare})
			}
			r.rowKey = rowKey{context: rareOnes, what: r.what, probe: r.probe}
		}
		if tree[r.context].frame != rare || r.context == cct.Root {
			kept = append(kept, r)
			continue
		}
		if at, known := index[r.rowKey]; known {
			kept[at].add(&r)
			continue
		}
		index[r.rowKey] = len(kept)
		kept = append(kept, r)
	}
	e.tree, e.rows = tree, kept
}

// weight says how much a row matters, at least 1.
func (r *row) weight(kind profile.EventKind) uint64 {
	v := math.Abs(r.values[kind.Main()])
	if !(v < math.MaxUint32) { // also what is no number
		v = math.MaxUint32
	}
	return uint64(v) + 1
}

// selves are the weights of contexts.
func selves(tree []node) []uint64 {
	list := make([]uint64, len(tree))
	for id := range tree {
		list[id] = tree[id].self
	}
	return list
}

// addUp adds to the weight of each context those of what it called.
func addUp(weights []uint64, tree []node) {
	for id := len(tree) - 1; id > 0; id-- { // children before parents
		weights[tree[id].parent] += weights[id]
	}
}

// limitCalls keeps the heaviest edges of all graphs. The weight of others counts as overflow of
// their graph.
func (w *window) limitCalls(limit int) {
	var all []uint64
	for _, p := range w.processes {
		for _, c := range p.Calls {
			for _, weight := range c.Graph.Edges() {
				all = append(all, edgeWeight(weight))
			}
		}
	}
	least := leastOf(all, limit)
	if least == 0 {
		return
	}
	for _, p := range w.processes {
		for _, c := range p.Calls {
			kept := 0
			for _, weight := range c.Graph.Edges() {
				if edgeWeight(weight) > least {
					kept++
				}
			}
			heaviest := &profile.Graph{Limit: max(kept, 1)}
			heaviest.Merge(c.Graph)
			c.Graph = heaviest
			for e := range c.Intervals {
				if heaviest.Weight(e) == 0 {
					delete(c.Intervals, e)
				}
			}
		}
	}
}

func edgeWeight(w float64) uint64 { return uint64(min(max(w, 0), math.MaxUint32)*16) + 1 }

// leastOf returns a number that no more than limit of all exceed; 0 if that is all of them. It
// changes their order.
func leastOf(all []uint64, limit int) uint64 {
	if len(all) <= limit {
		return 0
	}
	// Hoare's selection of the number that has limit larger ones before it.
	for from, to := 0, len(all)-1; ; {
		if from >= to {
			return all[limit]
		}
		pivot := middle(all[from], all[(from+to)/2], all[to])
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
		case limit <= j:
			to = j
		case limit >= i:
			from = i
		default:
			return all[limit]
		}
	}
}

// middle returns the second largest of three numbers.
func middle(a, b, c uint64) uint64 { return max(min(a, b), min(max(a, b), c)) }

// prune returns a tree of the contexts whose totals exceed least. The others become a frame below
// the nearest caller that is kept. It also returns the place of each context in the new tree.
func prune(t []node, totals []uint64, least uint64) ([]node, []cct.NodeID) {
	var (
		out     = make([]node, 1, len(t))
		rareAt  = make([]cct.NodeID, len(t)) // by context of the new tree: the rare one below it, 0 if there is none
		place   = make([]cct.NodeID, len(t))
		cut     = make([]bool, len(t)) // it is part of a rare one
		newNode = func(n node) cct.NodeID {
			out = append(out, n)
			return cct.NodeID(len(out) - 1)
		}
	)
	out[0] = t[0]
	for id := 1; id < len(t); id++ {
		n := t[id]
		up := place[n.parent]
		switch {
		case cut[n.parent]:
			place[id], cut[id] = up, true
			out[up].self += n.self
		case n.frame != rare && totals[id] > least:
			n.parent = up
			place[id] = newNode(n)
		default:
			cut[id] = n.frame != rare
			if rareAt[up] == 0 {
				rareAt[up] = newNode(node{parent: up, frame: rare})
			}
			place[id] = rareAt[up]
			out[place[id]].self += n.self
		}
	}
	return out, place
}
