package flame

import (
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/audit"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

// A whyKey is a method with what it calls, under one caller or under all (caller is -1).
type whyKey struct{ caller, callee int32 }

// A whyTree has the contexts of one kind, and what they cost in each window of both times.
// Processes and threads are merged: names remain.
type whyTree struct {
	kind    string
	title   string
	unit    string
	names   []string
	places  map[string]int32 // index of each name
	tree    *cct.Tree[int32] // contexts, by names
	edges   []whyKey         // by cct.NodeID: its two innermost methods; caller is -2 if that is nobody
	sides   [2][]whyWindow
	removed map[whyKey]bool
	cells   []whyCell // room for those of a window
}

type whyWindow struct {
	duration time.Duration
	cells    []whyCell
}

type whyCell struct {
	node cct.NodeID
	cost audit.Cost
}

func newWhyTree(kind string) *whyTree {
	return &whyTree{kind: kind, title: kind, places: make(map[string]int32),
		tree: &cct.Tree[int32]{Limit: maxWhyContexts}, edges: []whyKey{{-2, -1}}, removed: make(map[whyKey]bool)}
}

// read reads a window.
func (t *whyTree) read(f *Graph, service string, pid int64) whyWindow {
	t.cells = t.cells[:0]
	t.title = f.Title
	if t.unit == "" || f.Unit != stored.UnitCount { // an empty one has no other unit
		t.unit = f.Unit
	}
	place, out := make([]cct.NodeID, len(f.nodes)), make([]bool, len(f.nodes))
	for at, of := range f.tree.Nodes() {
		n, frame := &f.nodes[at], of.Key
		switch place[at], out[at] = place[of.Parent], out[of.Parent]; {
		case at == cct.Root:
			continue
		case of.Depth == 1:
			p, known := f.processes[frame]
			out[at] = known && (service != "" && p.Service != service || pid != 0 && p.PID != pid)
		case !out[at] && f.frames[frame].kind != kindThread && f.frames[frame].name != deepFrames:
			place[at] = t.child(place[at], f.frames[frame].name)
		}
		if !out[at] && (n.value[0] > 0 || n.count[0] > 0) {
			t.cells = append(t.cells, whyCell{place[at], audit.Cost{Amount: n.value[0], Samples: n.count[0]}})
		}
	}
	return whyWindow{f.Duration, slices.Clone(t.cells)} // without spare room
}

// coarsen adds up neighbouring windows where there are many.
func (t *whyTree) coarsen() {
	for side, windows := range t.sides {
		together := (len(windows) + maxWhyWindows - 1) / maxWhyWindows
		if together < 2 {
			continue
		}
		var sums []whyWindow
		for part := range slices.Chunk(windows, together) {
			var sum whyWindow
			for _, w := range part {
				sum.duration += w.duration
				sum.cells = append(sum.cells, w.cells...)
			}
			sums = append(sums, sum)
		}
		t.sides[side] = sums
	}
}

// child finds or makes a context. If there is no room, it is the parent.
func (t *whyTree) child(parent cct.NodeID, name string) cct.NodeID {
	method, known := t.places[name]
	if !known {
		method = int32(len(t.names))
		t.places[name], t.names = method, append(t.names, name)
	}
	at := t.tree.AddBelow(parent, method, 0, 0)
	if int(at) == len(t.edges) {
		edge := whyKey{-2, method}
		// profile.RareStacks stands for callers that are not known.
		if caller := t.edges[parent].callee; parent != cct.Root && t.names[caller] != profile.RareStacks {
			edge.caller = caller
		}
		t.edges = append(t.edges, edge)
	}
	return at
}

// innermost has the innermost methods only: what each costs without what it calls.
func (t *whyTree) innermost() *whyTree {
	out := newWhyTree(t.kind)
	for side, windows := range t.sides {
		for _, w := range windows {
			to := whyWindow{duration: w.duration}
			for _, c := range w.cells {
				if c.node > 0 {
					c.node = out.child(cct.Root, t.names[t.edges[c.node].callee])
				}
				to.cells = append(to.cells, c)
			}
			out.sides[side] = append(out.sides[side], to)
		}
	}
	return out
}

// without says of each context whether it is in what was removed.
func (t *whyTree) without() []bool {
	gone := make([]bool, len(t.edges))
	for at, n := range t.tree.Nodes() { // parents before children
		gone[at] = gone[n.Parent] || t.removed[t.edges[at]] || t.removed[whyKey{-1, t.edges[at].callee}]
	}
	return gone
}

// choose returns the keys that have some share of both times together, whatever their difference
// is.
func (t *whyTree) choose(gone []bool) []whyKey {
	sums := make([][2]float64, len(t.edges))
	var all [2]float64
	for side, windows := range t.sides {
		for i := range windows {
			for _, c := range windows[i].cells {
				if !gone[c.node] {
					sums[c.node][side] += c.cost.Amount
					all[side] += c.cost.Amount
				}
			}
		}
	}
	for side := range all {
		all[side] = max(all[side], 1e-9)
	}
	shares := make(map[whyKey]float64)
	seen := make(map[whyKey]int32) // the context that counted last
	var order []whyKey
	for at := range sums {
		share := (sums[at][0]/all[0] + sums[at][1]/all[1]) / 2
		if share == 0 {
			continue
		}
		for n := cct.NodeID(at); n != cct.Root; n = t.tree.Node(n).Parent {
			for _, k := range []whyKey{t.edges[n], {-1, t.edges[n].callee}} {
				if seen[k] != int32(at) { // recursion counts once
					if _, known := shares[k]; !known {
						order = append(order, k)
					}
					seen[k] = int32(at)
					shares[k] += share
				}
			}
		}
	}
	order = slices.DeleteFunc(order, func(k whyKey) bool { return t.names[k.callee] == profile.RareStacks })
	return audit.Largest(order, func(k whyKey) float64 { return shares[k] }, leastWhyShare, maxWhyKeys)
}

// count makes the sides of a comparison by keys. The units of a window are its seconds; or its
// whole cost, with or without what was removed: then costs per unit are shares.
func (t *whyTree) count(
	keys []whyKey, gone []bool, units func(w *whyWindow, left, all audit.Cost) float64,
) (sides [2]audit.Side[int32]) {
	index := make(map[whyKey]int32, len(keys))
	for i, k := range keys {
		index[k] = int32(i)
	}
	of := make([][]int32, len(t.edges)) // keys of each context, shared with its caller if it adds none
	for at, n := range t.tree.Nodes() {
		if at == cct.Root {
			continue
		}
		list := of[n.Parent]
		for _, k := range []whyKey{t.edges[at], {-1, n.Key}} {
			if i, wanted := index[k]; wanted && !slices.Contains(list, i) {
				list = append(list[:len(list):len(list)], i)
			}
		}
		of[at] = list
	}
	for side, windows := range t.sides {
		var run audit.Run[int32]
		for i := range windows {
			w := &windows[i]
			out := audit.Window[int32]{Keys: make(map[int32]audit.Cost)}
			sums := make([]audit.Cost, len(keys))
			var all audit.Cost
			for _, c := range w.cells {
				all = all.Plus(c.cost)
				if gone != nil && gone[c.node] {
					continue
				}
				out.Total = out.Total.Plus(c.cost)
				for _, k := range of[c.node] {
					sums[k] = sums[k].Plus(c.cost)
				}
			}
			for k, sum := range sums {
				if sum != (audit.Cost{}) {
					out.Keys[int32(k)] = sum
				}
			}
			out.Units = units(w, out.Total, all)
			run.Windows = append(run.Windows, out)
		}
		sides[side].Runs = []audit.Run[int32]{run}
	}
	return sides
}
