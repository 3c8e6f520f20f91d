package history

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

// Bounds of a stored window, of any length. What exceeds them is merged, so that sums stay.
const (
	// maxContexts bounds the contexts of CPU time in a window, those of each kind of events, and
	// rows and edges likewise.
	maxContexts  = 1 << 15
	maxProcesses = 1000
	maxThreads   = 128 // groups of threads of one process
	maxTexts     = 64  // comments of a window, notes of a process and the like

	// maxMerging bounds the contexts of each kind, rows and edges while windows are added up, apart
	// from those of the last window: beyond it the rarest are merged early.
	maxMerging = 8 * maxContexts

	otherProcesses = "[other processes]"
	otherThreads   = "[other threads]"
)

// A merger makes one window of several.
type merger struct {
	names     *names
	spare     *spare
	sum       window    // without processes
	end       time.Time // end of the last window
	index     map[processKey]*mergedProcess
	processes []*mergedProcess
	place     []cct.NodeID // where contexts of a tree went
}

func newMerger(n *names, s *spare) *merger { return &merger{names: n, spare: s} }

// A spare has the memory of mergers that are done, for the next ones: most windows have threads and
// events like those before them.
type spare struct {
	threads []*mergedThread
	events  []*mergedEvents
}

// release makes m's memory spare. Its window stays, as it has memory of its own.
func (m *merger) release() {
	*m.spare = spare{}
	kept := 0
	room := func(contexts int) bool {
		kept += contexts
		return kept <= maxArena
	}
	for _, p := range m.processes {
		for _, t := range p.threads {
			if room(t.tree.Len()) {
				t.tree.Purge()
				m.spare.threads = append(m.spare.threads, t)
			}
		}
		for _, e := range p.events {
			if e != nil && room(max(e.tree.Len(), len(e.rows))) {
				e.tree.Purge()
				*e = mergedEvents{events: events{rows: e.rows[:0]}, tree: e.tree, first: e.first[:0], next: e.next[:0]}
				m.spare.events = append(m.spare.events, e)
			}
		}
	}
	*m = merger{names: m.names, spare: m.spare, place: m.place}
}

func (s *spare) thread(key threadKey) *mergedThread {
	if len(s.threads) == 0 {
		return &mergedThread{threadKey: key}
	}
	t := s.threads[0]
	t.threadKey, t.cpuTime, s.threads = key, cpuTime{}, s.threads[1:]
	return t
}

func (s *spare) eventsOf(kind profile.EventKind) *mergedEvents {
	if len(s.events) == 0 {
		return &mergedEvents{events: events{kind: kind}}
	}
	e := s.events[0]
	e.kind, s.events = kind, s.events[1:]
	return e
}

type processKey struct {
	pid                    int
	comm, service, runtime string
	labels                 string
}

// keyOf distinguishes processes of several windows. What had other labels for a while stays apart.
func keyOf(p *process) processKey {
	var labels strings.Builder
	for _, l := range p.Labels {
		labels.WriteString(l.Name + "\x00" + l.Value + "\x00")
	}
	return processKey{p.PID, p.Comm, p.Service, p.Runtime, labels.String()}
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
	cpuTime
}

type callKey struct {
	engine string
	basis  profile.Basis
}

type mergedEvents struct {
	events // without a tree
	tree   cct.Tree[frameID]
	// The rows of a context are a list. Those behind the first few are found by hash: a target may
	// have any number.
	first []int32 // by context; the row's place plus 1, 0 if there is none
	next  []int32 // by row
	far   map[rowKey]int32
}

// nearRows are the rows of a context that are found without a hash. Most contexts have one or two.
const nearRows = 8

// add adds a window, which covers the time until end. The window is not changed.
func (m *merger) add(w *window, end time.Time) {
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
	// A program may have other stacks in each window. Each context that is kept may have a rare one
	// below it.
	m.limit(maxMerging, 2*maxContexts)
}

// finish returns the window of all that was added, with at most limit contexts of each kind. It
// needs room until it is used no more.
func (m *merger) finish(limit int, room *arena) *window {
	slices.SortStableFunc(m.processes, func(a, b *mergedProcess) int {
		return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.Comm, b.Comm), cmp.Compare(a.Service, b.Service))
	})
	m.limit(limit, limit)
	w := m.sum
	for _, from := range m.processes {
		to := from.process
		for _, t := range from.threads {
			to.threads = append(to.threads, thread{t.threadKey, listed(&t.tree, room), t.cpuTime})
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

// byContext orders rows by their contexts, of which there are so many. Rows of one context keep
// their order.
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
	key := keyOf(one)
	if m.index[key] == nil && len(m.index) >= maxProcesses {
		key = processKey{comm: otherProcesses}
	}
	p := m.index[key]
	if p == nil {
		p = &mergedProcess{index: make(map[threadKey]*mergedThread), calls: make(map[callKey]*profile.Calls)}
		p.PID, p.Comm, p.Service, p.Runtime = key.pid, key.comm, key.service, key.runtime
		if key.comm != otherProcesses {
			p.VM, p.Executable, p.Labels = one.VM, one.Executable, one.Labels
		}
		m.index[key] = p
		m.processes = append(m.processes, p)
	}
	return p
}

func (p *mergedProcess) add(m *merger, one *process) {
	p.Notes = appendNew(p.Notes, one.Notes)
	p.Extents = profile.AddExtents(p.Extents, one.Extents...)
	for i := range one.threads {
		p.addThread(m, &one.threads[i])
	}
	for i := range one.events {
		e := &one.events[i]
		if p.events[e.kind] == nil {
			p.events[e.kind] = m.spare.eventsOf(e.kind)
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
		sum = m.spare.thread(key)
		p.index[key] = sum
		p.threads = append(p.threads, sum)
	}
	m.graft(&sum.tree, t.tree)
	of := t.cpuTime
	if of.sampled == 0 { // an earlier version of the agent recorded it
		for i := range t.tree {
			of.sampled += float64(t.tree[i].self) * float64(m.sum.Period)
		}
	}
	sum.add(of)
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
		r := other.rows[i]
		r.context = place[r.context]
		e.addRow(&r)
	}
}

// addRow adds up rows that differ by nothing.
func (e *mergedEvents) addRow(r *row) {
	if missing := e.tree.Len() + 1 - len(e.first); missing > 0 {
		e.first = append(e.first, make([]int32, missing)...)
	}
	before, at := int32(0), e.first[r.context]
	for range nearRows {
		if at == 0 {
			e.rows, e.next = append(e.rows, *r), append(e.next, 0)
			if n := int32(len(e.rows)); before == 0 {
				e.first[r.context] = n
			} else {
				e.next[before-1] = n
			}
			return
		}
		if known := &e.rows[at-1]; known.rowKey == r.rowKey {
			known.add(r)
			return
		}
		before, at = at, e.next[at-1]
	}
	if at, known := e.far[r.rowKey]; known {
		e.rows[at-1].add(r)
		return
	}
	if e.far == nil {
		e.far = make(map[rowKey]int32)
	}
	e.rows, e.next = append(e.rows, *r), append(e.next, 0)
	e.far[r.rowKey] = int32(len(e.rows))
}

// addCalls adds a call graph. Rates differ from window to window as the budget changes them: the
// last one is kept.
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
	return profile.AddNotes(to, maxTexts, from...)
}
