package top

import (
	"cmp"
	"slices"
	"strings"
	"time"
	"unique"

	"github.com/vmprof-agent/vmprof-agent/agent/model/cause"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// A callerRow is a line of the tree of callers.
type callerRow struct {
	method methodName
	indent int     // grows where callers branch: long chains of one caller each are not indented
	share  float64 // share of the method's weight
}

// Bounds of the tree of callers.
const (
	maxCallerDepth = 64
	maxCallerNodes = 1 << 16
)

// A content is what a table is made of: CPU time, or one kind of events.
type content struct {
	events bool
	kind   profile.EventKind
}

// windows are those of the span.
func (m *Model) windows(of content, span time.Duration) []*window {
	if of.events {
		return m.recent(of.kind, span)
	}
	return within(m.cpu, span)
}

// contexts calls f for the contexts of a process that have a weight of their own.
func (c content) contexts(p *profile.Process, f func(tree *cct.Tree[symbol.Symbol], id cct.NodeID, weight uint64)) {
	if !c.events {
		for _, thread := range p.Threads {
			if thread.Tree == nil {
				continue
			}
			for id, n := range thread.Tree.Nodes() {
				if n.Self > 0 {
					f(thread.Tree, id, n.Self)
				}
			}
		}
		return
	}
	for _, events := range p.Events {
		if events.Kind != c.kind {
			continue
		}
		for i := range events.Rows {
			if row := &events.Rows[i]; !c.kind.Apart(&row.EventLabels) &&
				!(c.kind == profile.OffCPU && row.What == cause.Idle) {
				f(events.Tree, row.Context, uint64(row.Values[c.kind.Main()]))
			}
		}
	}
}

// callers is the tree of those who call a method, the heaviest first, by what the method has
// itself. Branches of less than least of that, 0 to 1, are left out; together they are a row if they
// are not less.
func (m *Model) callers(in content, sel selection, of methodName, least float64) []callerRow {
	tree := cct.Tree[method]{Limit: maxCallerNodes}
	var path []method
	for _, p := range m.profiles(in, sel) {
		m.names = map[symbol.Symbol]method{}
		for _, process := range p.Processes {
			in.contexts(process, func(t *cct.Tree[symbol.Symbol], id cct.NodeID, weight uint64) {
				if in.events && (in.kind == profile.OffCPU || in.kind == profile.Locks) {
					id = m.program(t, id)
				}
				if m.method(t, id).Value() != of {
					return
				}
				path = path[:0]
				for at := id; at != cct.Root && len(path) < maxCallerDepth; at = t.Node(at).Parent {
					path = append(path, m.named(t.Node(at).Key))
				}
				slices.Reverse(path) // the outermost frame of this tree is the method
				tree.Add(path, weight)
			})
		}
	}
	totals, total := tree.Totals(), float64(tree.Total())
	shown := func(id cct.NodeID) bool { return float64(totals[id]) >= least*total && totals[id] > 0 }
	rest := unique.Make(methodName{name: other})
	pruned, _ := tree.Prune(&rest, shown)
	totals = pruned.Totals()
	indents := make([]int, pruned.Len()+1)
	var list []callerRow
	pruned.Walk(pruned.Heaviest(totals, compareMethods), func(id cct.NodeID, n cct.Node[method]) bool {
		if !shown(id) {
			return false
		}
		siblings := 0
		for sibling := range pruned.Children(n.Parent) {
			if shown(sibling) {
				siblings++
			}
		}
		indents[id] = indents[n.Parent]
		if siblings > 1 || n.Depth == 2 {
			indents[id]++
		}
		list = append(list, callerRow{n.Key.Value(), indents[id], float64(totals[id]) / total})
		return true
	})
	return list
}

func compareMethods(a, b method) int {
	return cmp.Or(strings.Compare(a.Value().name, b.Value().name), cmp.Compare(a.Value().code, b.Value().code))
}

// profiles returns the profiles of the span, oldest first, with the processes of the selected
// service only. Those for which there was no room are missing.
func (m *Model) profiles(of content, sel selection) (list []*profile.Profile) {
	for _, w := range m.windows(of, sel.span) {
		if w.profile == nil {
			continue
		}
		p := *w.profile
		if sel.service != "" {
			p.Processes = slices.DeleteFunc(slices.Clone(p.Processes),
				func(of *profile.Process) bool { return serviceOf(of) != sel.service })
		}
		list = append(list, &p)
	}
	return list
}
