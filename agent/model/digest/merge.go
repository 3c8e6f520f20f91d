package digest

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// Bounds of a window, of any length. What exceeds them is merged, so that sums stay.
const (
	// MaxContexts bounds the contexts of CPU time in a window, those of each kind of events, and
	// rows and edges likewise.
	MaxContexts  = 1 << 15
	MaxProcesses = 1000
	MaxThreads   = 128 // groups of threads of one process
	MaxTexts     = 64  // comments of a window, notes of a process and the like

	// maxMerging bounds the contexts of each kind, rows and edges while windows are added up, apart
	// from those of the last window: beyond it the rarest are merged early.
	maxMerging = 8 * MaxContexts

	otherProcesses = "[other processes]"
	otherThreads   = "[other threads]"
)

// A Merger makes one window of several.
type Merger struct {
	Names  *Names
	End    time.Time // end of the last window
	Pruned bool      // some contexts or rows became rare ones

	part      *Part // nil for everything
	spare     *Spare
	sum       profile.Profile // without processes
	index     map[processKey]*mergedProcess
	processes []*mergedProcess
	place     []cct.NodeID // where contexts of a tree went
}

// NewMerger returns a merger of windows, or of the part of them that n is for. s may be nil.
func NewMerger(n *Names, s *Spare) *Merger {
	if s == nil {
		s = new(Spare)
	}
	return &Merger{Names: n, part: n.part, spare: s}
}

// A Spare has the memory of mergers that are done, for the next ones: most windows have threads and
// events like those before them.
type Spare struct {
	threads []*mergedThread
	events  []*mergedEvents
}

// Release makes m's memory spare. Its window stays, as it has memory of its own.
func (m *Merger) Release() {
	*m.spare = Spare{}
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
			if e != nil && room(max(e.tree.Len(), len(e.Rows))) {
				e.tree.Purge()
				*e = mergedEvents{Events: Events{Rows: e.Rows[:0]}, tree: e.tree, first: e.first[:0], next: e.next[:0]}
				m.spare.events = append(m.spare.events, e)
			}
		}
	}
	*m = Merger{Names: m.Names, part: m.part, spare: m.spare, place: m.place}
}

func (s *Spare) thread(key ThreadKey) *mergedThread {
	if len(s.threads) == 0 {
		return &mergedThread{ThreadKey: key}
	}
	t := s.threads[0]
	t.ThreadKey, t.CPUTime, s.threads = key, CPUTime{}, s.threads[1:]
	return t
}

func (s *Spare) eventsOf(kind profile.EventKind) *mergedEvents {
	if len(s.events) == 0 {
		return &mergedEvents{Events: Events{Kind: kind}}
	}
	e := s.events[0]
	e.Kind, s.events = kind, s.events[1:]
	return e
}

type processKey struct {
	pid                    int
	comm, service, runtime string
	labels                 string
}

// keyOf distinguishes processes of several windows. What had other labels for a while stays apart.
func (m *Merger) keyOf(p *profile.Process) processKey {
	if m.part != nil {
		return processKey{pid: p.PID, comm: p.Comm}
	}
	var labels strings.Builder
	for _, l := range p.Labels {
		labels.WriteString(l.Name + "\x00" + l.Value + "\x00")
	}
	return processKey{p.PID, p.Comm, p.Service, p.Runtime, labels.String()}
}

type mergedProcess struct {
	profile.Process // without threads and events

	index   map[ThreadKey]*mergedThread
	threads []*mergedThread
	events  [profile.EventKinds]*mergedEvents
	calls   map[callKey]*profile.Calls
}

type mergedThread struct {
	ThreadKey
	tree cct.Tree[FrameID]
	CPUTime
}

type callKey struct {
	engine string
	basis  profile.Basis
}

type mergedEvents struct {
	Events // without a tree
	tree   cct.Tree[FrameID]
	// The rows of a context are a list. Those behind the first few are found by hash: a target may
	// have any number.
	first []int32 // by context; the row's place plus 1, 0 if there is none
	next  []int32 // by row
	far   map[RowKey]int32
}

// nearRows are the rows of a context that are found without a hash. Most contexts have one or two.
const nearRows = 8

// Add adds a window, which covers the time until end. It is not changed.
func (m *Merger) Add(w *Window, end time.Time) {
	m.begin(&w.Profile, end)
	for _, one := range w.Processes {
		p := m.process(&one.Process)
		for i := range one.Threads {
			t := &one.Threads[i]
			sum := m.thread(p, t.ThreadKey)
			m.graft(&sum.tree, t.Tree)
			of := t.CPUTime
			if of.Sampled == 0 { // an earlier version of the agent recorded it
				for i := range t.Tree {
					of.Sampled += float64(t.Tree[i].Self) * float64(m.sum.Period)
				}
			}
			sum.add(of)
		}
		for i := range one.Events {
			e := &one.Events[i]
			sum := m.events(p, e.Kind)
			sum.addAbout(e.Basis, e.Coverage)
			place := m.graft(&sum.tree, e.Tree)
			for i := range e.Rows {
				r := e.Rows[i]
				r.Context = place[r.Context]
				sum.addRow(&r)
			}
		}
		for _, c := range one.Calls {
			p.addCalls(c)
		}
	}
	m.bound()
}

// begin adds what is about all of a window.
func (m *Merger) begin(w *profile.Profile, end time.Time) {
	if m.index == nil {
		m.index = make(map[processKey]*mergedProcess)
		m.sum.Start, m.sum.Period, m.sum.Event, m.sum.Unit = w.Start, w.Period, w.Event, w.Unit
		m.End = end
	}
	if w.Start.Before(m.sum.Start) {
		m.sum.Start = w.Start
	}
	if end.After(m.End) {
		m.End = end
	}
	m.sum.Duration += w.Duration
	m.sum.Counts.Add(w.Counts)
	m.sum.EventCounts.Add(w.EventCounts)
	m.sum.Comments = appendNew(m.sum.Comments, w.Comments)
}

// bound prunes what was added. A program may have other stacks in each window. Each context that is
// kept may have a rare one below it.
func (m *Merger) bound() { m.limit(maxMerging, 2*MaxContexts) }

// Finish returns the window of all that was added, with at most limit contexts of each kind. It
// needs room until it is used no more.
func (m *Merger) Finish(limit int, room *Arena) *Window {
	m.finish(limit)
	w := &Window{Profile: m.sum}
	for _, from := range m.processes {
		to := &Process{Process: from.Process}
		for _, t := range from.threads {
			to.Threads = append(to.Threads, Thread{t.ThreadKey, listed(&t.tree, room), t.CPUTime})
		}
		for _, e := range from.events {
			if e != nil {
				of := e.Events
				of.Tree = listed(&e.tree, room)
				of.Rows = byContext(of.Rows, len(of.Tree), room)
				to.Events = append(to.Events, of)
			}
		}
		w.Processes = append(w.Processes, to)
	}
	return w
}

func (m *Merger) finish(limit int) {
	slices.SortStableFunc(m.processes, func(a, b *mergedProcess) int {
		return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.Comm, b.Comm), cmp.Compare(a.Service, b.Service))
	})
	m.limit(limit, limit)
}

func listed(t *cct.Tree[FrameID], room *Arena) []Node {
	list := room.Nodes(t.Len() + 1)
	for id, n := range t.Nodes() {
		list[id] = Node{n.Parent, n.Key, n.Self, n.Entered}
	}
	return list
}

// byContext orders rows by their contexts, of which there are so many. Rows of one context keep
// their order.
func byContext(rows []Row, contexts int, room *Arena) []Row {
	next := make([]int32, contexts+1)
	for i := range rows {
		next[rows[i].Context+1]++
	}
	for i := range contexts {
		next[i+1] += next[i]
	}
	sorted := room.Rows(len(rows))
	for i := range rows {
		at := &next[rows[i].Context]
		sorted[*at] = rows[i]
		*at++
	}
	return sorted
}

// process finds or makes the one that stands for a process, and adds what is about all of it.
func (m *Merger) process(one *profile.Process) *mergedProcess {
	key := m.keyOf(one)
	if m.index[key] == nil && len(m.index) >= MaxProcesses {
		key = processKey{comm: otherProcesses}
	}
	p := m.index[key]
	if p == nil {
		p = &mergedProcess{index: make(map[ThreadKey]*mergedThread), calls: make(map[callKey]*profile.Calls)}
		p.PID, p.Comm = key.pid, key.comm
		if key.comm != otherProcesses {
			p.Service, p.Runtime, p.VM = one.Service, one.Runtime, one.VM
			if m.part == nil {
				p.Labels = one.Labels
			}
			p.Executable = symbol.Mapping{File: one.Executable.File, BuildID: one.Executable.BuildID}
		}
		m.index[key] = p
		m.processes = append(m.processes, p)
	}
	p.Notes = appendNew(p.Notes, one.Notes)
	if m.part != nil {
		return p
	}
	p.Extents = profile.AddExtents(p.Extents, one.Extents...)
	if c := one.Contexts; c != nil {
		if p.Contexts == nil {
			p.Contexts = &profile.Contexts{Mode: c.Mode}
		}
		addContexts(p.Contexts, c)
	}
	return p
}

// thread finds or makes the one that stands for a thread.
func (m *Merger) thread(p *mergedProcess, key ThreadKey) *mergedThread {
	if p.index[key] == nil && len(p.index) >= MaxThreads {
		key.Name = m.Names.String(otherThreads)
	}
	sum := p.index[key]
	if sum == nil {
		sum = m.spare.thread(key)
		p.index[key] = sum
		p.threads = append(p.threads, sum)
	}
	return sum
}

// events finds or makes those of a kind.
func (m *Merger) events(p *mergedProcess, kind profile.EventKind) *mergedEvents {
	if p.events[kind] == nil {
		p.events[kind] = m.spare.eventsOf(kind)
	}
	return p.events[kind]
}

// addAbout adds what is about all events of a kind.
func (e *mergedEvents) addAbout(basis []string, coverage *profile.Coverage) {
	e.Basis = appendNew(e.Basis, basis)
	if coverage == nil {
		return
	}
	if e.Coverage == nil {
		e.Coverage = new(profile.Coverage)
	}
	e.Coverage.Add(coverage)
}

// addRow adds up rows that differ by nothing.
func (e *mergedEvents) addRow(r *Row) {
	if missing := e.tree.Len() + 1 - len(e.first); missing > 0 {
		e.first = append(e.first, make([]int32, missing)...)
	}
	before, at := int32(0), e.first[r.Context]
	for range nearRows {
		if at == 0 {
			e.Rows, e.next = append(e.Rows, *r), append(e.next, 0)
			if n := int32(len(e.Rows)); before == 0 {
				e.first[r.Context] = n
			} else {
				e.next[before-1] = n
			}
			return
		}
		if known := &e.Rows[at-1]; known.RowKey == r.RowKey {
			known.add(r)
			return
		}
		before, at = at, e.next[at-1]
	}
	if at, known := e.far[r.RowKey]; known {
		e.Rows[at-1].add(r)
		return
	}
	if e.far == nil {
		e.far = make(map[RowKey]int32)
	}
	e.Rows, e.next = append(e.Rows, *r), append(e.next, 0)
	e.far[r.RowKey] = int32(len(e.Rows))
}

// addCalls adds a call graph. Rates differ from window to window as the budget changes them: the
// last one is kept.
func (p *mergedProcess) addCalls(c *profile.Calls) {
	key := callKey{c.Engine, c.Basis}
	sum := p.calls[key]
	if sum == nil {
		sum = &profile.Calls{Engine: c.Engine, Basis: c.Basis, Graph: &profile.Graph{Limit: MaxContexts}}
		p.calls[key] = sum
		p.Calls = append(p.Calls, sum)
	}
	sum.Rate = c.Rate
	sum.Graph.Merge(c.Graph)
	for e, within := range c.Intervals {
		if sum.Intervals == nil {
			sum.Intervals = make(map[profile.Edge]profile.Interval)
		}
		if _, known := sum.Intervals[e]; known || len(sum.Intervals) < MaxContexts {
			sum.Intervals[e] = sum.Intervals[e].Add(within)
		}
	}
}

// graft adds a tree to another one, and returns where its contexts went, until the next call.
func (m *Merger) graft(to *cct.Tree[FrameID], from []Node) []cct.NodeID {
	m.place = slices.Grow(m.place[:0], len(from))[:len(from)]
	for id := range from {
		if n := &from[id]; id == 0 {
			m.place[0] = to.Add(nil, n.Self)
		} else {
			m.place[id] = to.AddBelow(m.place[n.Parent], n.Frame, n.Self, n.Entered)
		}
	}
	return m.place
}

// appendNew appends what is not there yet, up to a bound.
func appendNew(to, from []string) []string {
	return profile.AddNotes(to, MaxTexts, from...)
}
