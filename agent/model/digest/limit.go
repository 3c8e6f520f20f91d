package digest

import (
	"math"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

// limit prunes what there are more than most of, such that limit are left: contexts and rows of
// each kind, and edges, the rarest of which count as overflow.
func (m *Merger) limit(most, limit int) {
	m.limitThreads(most, limit)
	for kind := range profile.EventKinds {
		m.limitEvents(kind, most, limit)
	}
	m.limitCalls(most, limit)
}

// limitThreads prunes the contexts of CPU time.
func (m *Merger) limitThreads(most, limit int) {
	contexts := 0
	for _, p := range m.processes {
		for _, t := range p.threads {
			contexts += t.tree.Len()
		}
	}
	if contexts <= most {
		return
	}
	var trees []*cct.Tree[FrameID]
	for _, p := range m.processes {
		for _, t := range p.threads {
			trees = append(trees, &t.tree)
		}
	}
	m.Pruned = cct.PruneAll(trees, nil, limit, Rare) != nil || m.Pruned
}

// limitEvents prunes contexts of events by the weight of their rows, and rows. Those of other
// contexts stay apart from each other.
func (m *Merger) limitEvents(kind profile.EventKind, most, limit int) {
	contexts, rows := 0, 0
	for _, p := range m.processes {
		if e := p.events[kind]; e != nil {
			contexts, rows = contexts+e.tree.Len(), rows+len(e.Rows)
		}
	}
	if max(contexts, rows) <= most {
		return
	}
	var (
		list    []*mergedEvents
		trees   []*cct.Tree[FrameID]
		weights []float64
	)
	for _, p := range m.processes {
		if e := p.events[kind]; e != nil {
			list, trees = append(list, e), append(trees, &e.tree)
			for i := range e.Rows {
				weights = append(weights, e.Rows[i].weight(kind))
			}
		}
	}
	places := cct.PruneAll(trees, func(i int) []float64 {
		of := make([]float64, trees[i].Len()+1)
		for j := range list[i].Rows {
			r := &list[i].Rows[j]
			of[r.Context] += r.weight(kind)
		}
		return of
	}, limit, Rare)
	if places == nil && len(weights) <= limit {
		return
	}
	m.Pruned = true
	least := cct.NewCutoff(weights, limit).Least
	for i, e := range list {
		all := e.Rows
		e.Rows, e.first, e.next, e.far = nil, nil, nil, nil
		for j := range all {
			r := &all[j]
			if places != nil {
				r.Context = places[i][r.Context]
			}
			if r.weight(kind) <= least {
				r.RowKey = RowKey{Context: e.tree.AddBelow(cct.Root, Rare, 0, 0), What: r.What, Probe: r.Probe}
			}
			e.addRow(r)
		}
	}
}

// weight says how much a row matters, at least 1.
func (r *Row) weight(kind profile.EventKind) float64 {
	v := math.Abs(r.Values[kind.Main()])
	if !(v < math.MaxUint32) { // also what is no number
		v = math.MaxUint32
	}
	return v + 1
}

// limitCalls keeps the heaviest edges of all graphs. The weight of others counts as overflow of
// their graph.
func (m *Merger) limitCalls(most, limit int) {
	edges := 0
	for _, p := range m.processes {
		for _, c := range p.Calls {
			edges += c.Graph.Len()
		}
	}
	if edges <= most {
		return
	}
	all := make([]float64, 0, edges)
	for _, p := range m.processes {
		for _, c := range p.Calls {
			for _, weight := range c.Graph.Edges() {
				all = append(all, weight)
			}
		}
	}
	least := cct.NewCutoff(all, limit).Least
	for _, p := range m.processes {
		for _, c := range p.Calls {
			kept := 0
			for _, weight := range c.Graph.Edges() {
				if weight > least {
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
