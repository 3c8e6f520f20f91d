package history

import (
	"cmp"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

// Bounds of a stored window, of any length. What exceeds them is merged, so that sums stay.
const (
	// maxContexts bounds the contexts of CPU time in a window, those of each kind of events, and rows and edges likewise.
	maxContexts  = 1 << 15
	maxProcesses = 1000
	maxThreads   = 128 // groups of threads of one process
	maxTexts     = 64  // comments of a window, notes of a process and the like

	// maxMerging bounds the contexts of each kind, rows and edges while windows are added up, apart from those of the last window: beyond it
	// the rarest are merged early.
	maxMerging = 8 * maxContexts

	otherProcesses = "[other processes]"
	otherThreads   = "[other threads]"
	rareStacks     = "[rare stacks]"
)

// A merger makes one window of several.
type merger struct {
	names     *names
	sum       window    // without processes
	end       time.Time // of the last window
	index     map[processKey]*mergedProcess
	processes []*mergedProcess
	place     []cct.NodeID // where contexts of a tree went
}

func newMerger(n *names) *merger { return &merger{names: n} }

type processKey struct {
	pid                    int
	comm, service, runtime string
}

type mergedProcess struct {
	process // without threads and events
	index   map[threadKey]*mergedThread
	threads []*mergedThread
	events  [profile.EventKinds]*mergedEvents
	calls   map[callKey]*profile.Calls
}

type mergedThread struct {
	threadKey
	tree cct.Tree[frameID]
}

type callKey struct {
	engine string
	basis  profile.Basis
}

type mergedEvents struct {
	events // without a tree
	tree   cct.Tree[frameID]
	index  map[rowKey]int32
}

// add adds a window, which covers the time until end. The window is not changed.
func (m *merger) add(w *window, end time.Time) {
	m.addWindow(w, end)
	m.shrink()
}

func (m *merger) addWindow(w *window, end time.Time) {
	if m.index == nil {
		m.index = make(map[processKey]*mergedProcess)
		m.sum.Start, m.sum.Period, m.sum.Event, m.sum.Unit = w.Start, w.Period, w.Event, w.Unit
		m.end = end
	}
	if w.Start.Before(m.sum.Start) {
		m.sum.Start = w.Start
	}
	if end.After(m.end) {
		m.end = end
	}
	m.sum.Duration += w.Duration
	m.sum.Counts.Add(w.Counts)
	m.sum.EventCounts.Add(w.EventCounts)
	m.sum.Comments = appendNew(m.sum.Comments, w.Comments)
	for _, one := range w.processes {
		m.process(one).add(m, one)
	}
}

// shrink merges the rarest contexts, rows and edges if there are too many to add windows to them: a program may have other stacks in each.
func (m *merger) shrink() {
	const limit = 2 * maxContexts // each context that is kept may have a rare one below it
	contexts, edges := 0, 0
	var events [profile.EventKinds]int
	for _, p := range m.processes {
		for _, t := range p.threads {
			contexts += t.tree.Len()
		}
		for kind, e := range p.events {
			if e != nil {
				events[kind] += max(e.tree.Len(), len(e.rows))
			}
		}
		for _, c := range p.Calls {
			edges += c.Graph.Len()
		}
	}
	if max(contexts, edges, slices.Max(events[:])) <= maxMerging {
		return
	}
	w := m.list(new(arena))
	if contexts > maxMerging {
		w.limitThreads(limit)
	}
	for kind, most := range events {
		if most > maxMerging {
			w.limitEvents(profile.EventKind(kind), limit)
		}
	}
	if edges > maxMerging {
		w.limitCalls(limit)
	}
	end := m.end
	*m = merger{names: m.names, place: m.place}
	m.addWindow(w, end)
}

// finish returns the window of all that was added, with at most limit contexts of each kind. It needs room until it is used no more.
func (m *merger) finish(limit int, room *arena) *window {
	slices.SortStableFunc(m.processes, func(a, b *mergedProcess) int {
		return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.Comm, b.Comm), cmp.Compare(a.Service, b.Service))
	})
	w := m.list(room)
	w.limitThreads(limit)
	for kind := range profile.EventKinds {
		w.limitEvents(kind, limit)
	}
	w.limitCalls(limit)
	return w
}

// list returns the window of all that was added.
func (m *merger) list(room *arena) *window {
	w := m.sum
	for _, from := range m.processes {
		to := from.process
		for _, t := range from.threads {
			to.threads = append(to.threads, thread{t.threadKey, listed(&t.tree, room)})
		}
		for _, e := range from.events {
			if e != nil {
				of := e.events
				of.tree = listed(&e.tree, room)
				of.rows = byContext(of.rows, len(of.tree), room)
				to.events = append(to.events, of)
			}
		}
		w.processes = append(w.processes, &to)
	}
	return &w
}

func listed(t *cct.Tree[frameID], room *arena) []node {
	list := take(&room.nodes, t.Len()+1)
	for id, n := range t.Nodes() {
		list[id] = node{n.Parent, n.Key, n.Self, n.Entered}
	}
	return list
}

// byContext orders rows by their contexts, of which there are so many. Rows of one context keep their order.
func byContext(rows []row, contexts int, room *arena) []row {
	next := make([]int32, contexts+1)
	for i := range rows {
		next[rows[i].context+1]++
	}
	for i := range contexts {
		next[i+1] += next[i]
	}
	sorted := take(&room.rows, len(rows))
	for i := range rows {
		at := &next[rows[i].context]
		sorted[*at] = rows[i]
		*at++
	}
	return sorted
}

// process finds or makes the one that stands for a process.
func (m *merger) process(one *process) *mergedProcess {
	key := processKey{one.PID, one.Comm, one.Service, one.Runtime}
	if m.index[key] == nil && len(m.index) >= maxProcesses {
		key = processKey{comm: otherProcesses}
	}
	p := m.index[key]
	if p == nil {
		p = &mergedProcess{index: make(map[threadKey]*mergedThread), calls: make(map[callKey]*profile.Calls)}
		p.PID, p.Comm, p.Service, p.Runtime = key.pid, key.comm, key.service, key.runtime
		if key.comm != otherProcesses {
			p.VM, p.Executable = one.VM, one.Executable
		}
		m.index[key] = p
		m.processes = append(m.processes, p)
	}
	return p
}

func (p *mergedProcess) add(m *merger, one *process) {
	p.Notes = appendNew(p.Notes, one.Notes)
	for i := range one.threads {
		p.addThread(m, &one.threads[i])
	}
	for i := range one.events {
		e := &one.events[i]
		if p.events[e.kind] == nil {
			p.events[e.kind] = &mergedEvents{events: events{kind: e.kind}, index: make(map[rowKey]int32, len(e.rows))}
		}
		p.events[e.kind].add(m, e)
	}
	for _, c := range one.Calls {
		p.addCalls(c)
	}
	if c := one.Contexts; c != nil {
		if p.Contexts == nil {
			p.Contexts = &profile.Contexts{Mode: c.Mode}
		}
		addContexts(p.Contexts, c)
	}
}

func (p *mergedProcess) addThread(m *merger, t *thread) {
	key := t.threadKey
	if p.index[key] == nil && len(p.index) >= maxThreads {
		key.name = m.names.string(otherThreads)
	}
	sum := p.index[key]
	if sum == nil {
		sum = &mergedThread{threadKey: key}
		p.index[key] = sum
		p.threads = append(p.threads, sum)
	}
	m.graft(&sum.tree, t.tree)
}

func (e *mergedEvents) add(m *merger, other *events) {
	e.basis = appendNew(e.basis, other.basis)
	if other.coverage != nil {
		if e.coverage == nil {
			e.coverage = new(profile.Coverage)
		}
		e.coverage.Add(other.coverage)
	}
	place := m.graft(&e.tree, other.tree)
	for i := range other.rows {
		key := other.rows[i].rowKey
		key.context = place[key.context]
		at, known := e.index[key]
		if known {
			e.rows[at].add(&other.rows[i])
			continue
		}
		e.index[key] = int32(len(e.rows))
		e.rows = append(e.rows, row{key, other.rows[i].events, other.rows[i].values})
	}
}

// addCalls adds a call graph. Rates differ from window to window as the budget changes them: the last one is kept.
func (p *mergedProcess) addCalls(c *profile.Calls) {
	key := callKey{c.Engine, c.Basis}
	sum := p.calls[key]
	if sum == nil {
		sum = &profile.Calls{Engine: c.Engine, Basis: c.Basis, Graph: &profile.Graph{Limit: maxContexts}}
		p.calls[key] = sum
		p.Calls = append(p.Calls, sum)
	}
	sum.Rate = c.Rate
	sum.Graph.Merge(c.Graph)
	for e, within := range c.Intervals {
		if sum.Intervals == nil {
			sum.Intervals = make(map[profile.Edge]profile.Interval)
		}
		if _, known := sum.Intervals[e]; known || len(sum.Intervals) < maxContexts {
			sum.Intervals[e] = sum.Intervals[e].Add(within)
		}
	}
}

// graft adds a tree to another one, and returns where its contexts went, until the next call.
func (m *merger) graft(to *cct.Tree[frameID], from []node) []cct.NodeID {
	m.place = slices.Grow(m.place[:0], len(from))[:len(from)]
	for id := range from {
		if n := &from[id]; id == 0 {
			m.place[0] = to.Add(nil, n.self)
		} else {
			m.place[id] = to.AddBelow(m.place[n.parent], n.frame, n.self, n.entered)
		}
	}
	return m.place
}

// appendNew appends what is not there yet, up to a bound.
func appendNew(to, from []string) []string {
	for _, s := range from {
		if len(to) < maxTexts && !slices.Contains(to, s) {
			to = append(to, s)
		}
	}
	return to
}
