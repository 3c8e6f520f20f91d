package history

import (
	"cmp"
	"math"
	"slices"
	"time"
	"unique"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/stored"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
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

// rare is the frame that stands for contexts that are too many.
var rare = symbolize.Intern(symbolize.Frame{Function: rareStacks, SystemName: rareStacks, Kind: symbolize.KindMarker})

// A merger makes one window of several, in the form in which windows are stored. The zero value is ready to use for windows that were stored.
type merger struct {
	// frames are those of the processes in the form in which they are stored; nil if the windows come from a history.
	frames    frameCache
	out       profile.Profile
	end       time.Time
	index     map[processKey]*mergedProcess
	processes []*mergedProcess
}

type processKey struct {
	pid                    int
	comm, service, runtime string
}

type mergedProcess struct {
	profile.Process
	threads map[threadKey]*profile.Thread
	events  [profile.EventKinds]*mergedEvents
	calls   map[callKey]*profile.Calls
}

type threadKey struct {
	name    string
	stopped bool
	context profile.Certainty
}

type callKey struct {
	engine string
	basis  profile.Basis
}

type mergedEvents struct {
	profile.Events
	rows map[rowKey]int
}

type rowKey struct {
	context cct.NodeID
	thread  string
	profile.EventLabels
}

// add adds a window, which covers the time until end. The window is not changed.
func (m *merger) add(p *profile.Profile, end time.Time) {
	if m.index == nil {
		m.index = make(map[processKey]*mergedProcess)
		m.out = profile.Profile{Start: p.Start, Period: p.Period, Event: p.Event, Unit: p.Unit}
		m.end = end
	}
	if p.Start.Before(m.out.Start) {
		m.out.Start = p.Start
	}
	if end.After(m.end) {
		m.end = end
	}
	m.out.Duration += p.Duration
	m.out.Counts.Add(p.Counts)
	m.out.EventCounts.Add(p.EventCounts)
	m.out.Comments = appendNew(m.out.Comments, p.Comments)
	for _, proc := range p.Processes {
		m.process(proc).add(m, proc)
	}
	m.shrink()
}

// shrink merges the rarest contexts, rows and edges if there are too many to add windows to them: a program may have other stacks in each.
func (m *merger) shrink() {
	const limit = 2 * maxContexts // each context that is kept may have a rare one below it
	contexts, edges := 0, 0
	for _, p := range m.processes {
		for _, t := range p.Threads {
			contexts += t.Tree.Len()
		}
		for _, c := range p.Calls {
			edges += c.Graph.Len()
		}
	}
	if contexts > maxMerging {
		m.limitThreads(limit)
	}
	if edges > maxMerging {
		m.limitCalls(limit)
		for _, p := range m.processes {
			for _, c := range p.Calls {
				c.Graph.Limit = maxContexts // for windows to come
			}
		}
	}
	for kind := range profile.EventKinds {
		most := 0
		for _, p := range m.processes {
			if e := p.events[kind]; e != nil {
				most += max(e.Tree.Len(), len(e.Rows))
			}
		}
		if most > maxMerging {
			m.limitEvents(kind, limit)
		}
	}
}

// process finds or makes the one that stands for proc.
func (m *merger) process(proc *profile.Process) *mergedProcess {
	key := processKey{proc.PID, proc.Comm, proc.Service, proc.Runtime}
	if m.index[key] == nil && len(m.index) >= maxProcesses {
		key = processKey{comm: otherProcesses}
	}
	p := m.index[key]
	if p == nil {
		p = &mergedProcess{threads: make(map[threadKey]*profile.Thread), calls: make(map[callKey]*profile.Calls)}
		p.PID, p.Comm, p.Service, p.Runtime = key.pid, key.comm, key.service, key.runtime
		if key.comm != otherProcesses {
			p.VM = proc.VM
			p.Executable = symbolize.Mapping{File: proc.Executable.File, BuildID: proc.Executable.BuildID}
		}
		m.index[key] = p
		m.processes = append(m.processes, p)
	}
	return p
}

func (p *mergedProcess) add(m *merger, proc *profile.Process) {
	p.Notes = appendNew(p.Notes, proc.Notes)
	for _, t := range proc.Threads {
		if t.Tree == nil || t.Tree.Len() == 0 && t.Tree.Total() == 0 {
			continue
		}
		key := threadKey{stored.ThreadGroup(t.Name), t.Stopped, t.Context}
		if p.threads[key] == nil && len(p.threads) >= maxThreads {
			key.name = otherThreads
		}
		thread := p.threads[key]
		if thread == nil {
			thread = &profile.Thread{Name: key.name, Stopped: key.stopped, Context: key.context, Tree: new(cct.Tree[symbolize.Symbol])}
			p.threads[key] = thread
			p.Threads = append(p.Threads, thread)
		}
		m.graft(thread.Tree, t.Tree)
	}
	for _, e := range proc.Events {
		if p.events[e.Kind] == nil {
			p.events[e.Kind] = &mergedEvents{profile.Events{Kind: e.Kind, Tree: new(cct.Tree[symbolize.Symbol])}, make(map[rowKey]int)}
		}
		p.events[e.Kind].add(m, e)
	}
	for _, c := range proc.Calls {
		p.addCalls(m, c)
	}
	if c := proc.Contexts; c != nil {
		if p.Contexts == nil {
			p.Contexts = &profile.Contexts{Mode: c.Mode}
		}
		addContexts(p.Contexts, c)
	}
}

// addContexts adds up samples. What was learned is not a sum: it is the largest.
func addContexts(sum, c *profile.Contexts) {
	sum.Walked += c.Walked
	sum.Linked += c.Linked
	sum.Ambiguous += c.Ambiguous
	sum.Fitted += c.Fitted
	sum.Unplaced += c.Unplaced
	sum.Nodes, sum.Shared, sum.Methods = max(sum.Nodes, c.Nodes), max(sum.Shared, c.Shared), max(sum.Methods, c.Methods)
	for i := range c.ByDepth {
		sum.ByDepth[i] += c.ByDepth[i]
		sum.BySite[i] += c.BySite[i]
	}
}

func (e *mergedEvents) add(m *merger, other *profile.Events) {
	e.Basis = appendNew(e.Basis, other.Basis)
	if other.Coverage != nil {
		if e.Coverage == nil {
			e.Coverage = new(profile.Coverage)
		}
		e.Coverage.Add(other.Coverage)
	}
	var place []cct.NodeID
	if other.Tree != nil {
		place = m.graft(e.Tree, other.Tree)
	}
	for _, row := range other.Rows {
		at := cct.Root
		if int(row.Context) < len(place) {
			at = place[row.Context]
		}
		row.Context, row.TID, row.Thread = at, 0, stored.ThreadGroup(row.Thread)
		e.addRow(&row)
	}
}

// addRow adds up rows that differ by nothing.
func (e *mergedEvents) addRow(row *profile.EventRow) {
	key := rowKey{row.Context, row.Thread, row.EventLabels}
	i, known := e.rows[key]
	if !known {
		e.rows[key] = len(e.Rows)
		e.Rows = append(e.Rows, *row)
		return
	}
	e.Rows[i].Events += row.Events
	for v := range row.Values {
		e.Rows[i].Values[v] += row.Values[v]
	}
}

// addCalls adds a call graph. Rates differ from window to window as the budget changes them: the last one is kept.
func (p *mergedProcess) addCalls(m *merger, c *profile.Calls) {
	key := callKey{c.Engine, c.Basis}
	sum := p.calls[key]
	if sum == nil {
		sum = &profile.Calls{Engine: c.Engine, Basis: c.Basis, Graph: &profile.Graph{Limit: maxContexts}}
		p.calls[key] = sum
		p.Calls = append(p.Calls, sum)
	}
	sum.Rate = c.Rate
	asStored := func(e profile.Edge) profile.Edge {
		e.Caller, e.Callee = m.frame(e.Caller), m.frame(e.Callee)
		return e
	}
	sum.Graph.Merge(cct.MapGraph(c.Graph, asStored))
	for e, within := range c.Intervals {
		if sum.Intervals == nil {
			sum.Intervals = make(map[profile.Edge]profile.Interval)
		}
		e = asStored(e)
		if _, known := sum.Intervals[e]; known || len(sum.Intervals) < maxContexts {
			sum.Intervals[e] = sum.Intervals[e].Add(within)
		}
	}
}

// graft adds a tree to another one, and returns where its contexts went.
func (m *merger) graft(to, from *cct.Tree[symbolize.Symbol]) []cct.NodeID {
	place := make([]cct.NodeID, from.Len()+1)
	for id, n := range from.Nodes() {
		if id == cct.Root {
			to.Add(nil, n.Self)
			continue
		}
		place[id] = to.AddBelow(place[n.Parent], m.frame(n.Key), n.Self, n.Entered)
	}
	return place
}

// frame returns a frame as it is stored. An address means nothing without its process, and would make a context of each.
func (m *merger) frame(s symbolize.Symbol) symbolize.Symbol {
	if m.frames == nil {
		return s
	}
	f, known := m.frames[s]
	if !known {
		f = storedFrame(s)
		m.frames[s] = f
	}
	return f
}

// A frameCache has frames in the form in which they are stored.
type frameCache map[symbolize.Symbol]symbolize.Symbol

// maxCached bounds what a store keeps of them from window to window: it keeps names of ended processes in memory.
const maxCached = 1 << 16

func storedFrame(s symbolize.Symbol) symbolize.Symbol {
	f := s.Value()
	f.Address = 0
	if f.Mapping != (unique.Handle[symbolize.Mapping]{}) {
		of := f.Mapping.Value()
		f.Mapping = unique.Make(symbolize.Mapping{File: of.File, BuildID: of.BuildID})
	}
	return symbolize.Intern(f)
}

// finish returns the window of all that was added, with at most limit contexts of each kind.
func (m *merger) finish(limit int) *profile.Profile {
	out := m.out
	slices.SortStableFunc(m.processes, func(a, b *mergedProcess) int {
		return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.Comm, b.Comm), cmp.Compare(a.Service, b.Service))
	})
	m.limitThreads(limit)
	for kind := range profile.EventKinds {
		m.limitEvents(kind, limit)
	}
	m.limitCalls(limit)
	for _, p := range m.processes {
		for _, e := range p.events {
			if e != nil {
				slices.SortStableFunc(e.Rows, func(a, b profile.EventRow) int { return cmp.Compare(a.Context, b.Context) })
				p.Events = append(p.Events, &e.Events)
			}
		}
		out.Processes = append(out.Processes, &p.Process)
	}
	return &out
}

// limitThreads makes the rarest contexts of CPU time one, if there are more than limit.
func (m *merger) limitThreads(limit int) {
	var all []uint64
	contexts := 0
	for _, p := range m.processes {
		for _, t := range p.Threads {
			contexts += t.Tree.Len()
		}
	}
	if contexts <= limit {
		return // as mostly: totals take long
	}
	for _, p := range m.processes {
		for _, t := range p.Threads {
			all = append(all, t.Tree.Totals()[1:]...)
		}
	}
	least := leastOf(all, limit)
	if least == 0 {
		return
	}
	for _, p := range m.processes {
		for _, t := range p.Threads {
			t.Tree, _ = prune(t.Tree, t.Tree.Totals(), least)
		}
	}
}

// limitEvents does the same with contexts of events, and with rows.
func (m *merger) limitEvents(kind profile.EventKind, limit int) {
	var contexts, rows []uint64
	most := 0
	for _, p := range m.processes {
		if e := p.events[kind]; e != nil {
			most += max(e.Tree.Len(), len(e.Rows))
		}
	}
	if most <= limit {
		return
	}
	weights := make(map[*mergedEvents][]uint64)
	for _, p := range m.processes {
		e := p.events[kind]
		if e == nil {
			continue
		}
		totals := e.totals()
		weights[e] = totals
		contexts = append(contexts, totals[1:]...)
		for i := range e.Rows {
			rows = append(rows, rowWeight(&e.Rows[i], kind))
		}
	}
	leastContext, leastRow := leastOf(contexts, limit), leastOf(rows, limit)
	if leastContext == 0 && leastRow == 0 {
		return
	}
	for e, totals := range weights {
		tree, place := prune(e.Tree, totals, leastContext)
		old := e.Rows
		e.Tree, e.Rows, e.rows = tree, nil, make(map[rowKey]int)
		for i := range old {
			row := old[i]
			row.Context = place[row.Context]
			if rowWeight(&row, kind) <= leastRow && leastRow > 0 {
				row.Context = e.Tree.AddBelow(cct.Root, rare, 0, 0)
				row.Thread, row.EventLabels = "", profile.EventLabels{What: row.What, Probe: row.Probe}
			}
			e.addRow(&row)
		}
	}
}

// totals are the main values of all contexts with what they called.
func (e *mergedEvents) totals() []uint64 {
	totals := make([]uint64, e.Tree.Len()+1)
	for i := range e.Rows {
		totals[e.Rows[i].Context] += rowWeight(&e.Rows[i], e.Kind)
	}
	for id := e.Tree.Len(); id > 0; id-- { // children before parents
		totals[e.Tree.Node(cct.NodeID(id)).Parent] += totals[id]
	}
	return totals
}

// rowWeight says how much a row matters, at least 1.
func rowWeight(row *profile.EventRow, kind profile.EventKind) uint64 {
	v := math.Abs(row.Values[kind.Main()])
	if !(v < math.MaxUint32) { // also what is no number
		v = math.MaxUint32
	}
	return uint64(v) + 1
}

// limitCalls keeps the heaviest edges of all graphs. The weight of others counts as overflow of their graph.
func (m *merger) limitCalls(limit int) {
	var all []uint64
	for _, p := range m.processes {
		for _, c := range p.Calls {
			for _, w := range c.Graph.Edges() {
				all = append(all, edgeWeight(w))
			}
		}
	}
	least := leastOf(all, limit)
	if least == 0 {
		return
	}
	for _, p := range m.processes {
		for _, c := range p.Calls {
			kept := 0
			for _, w := range c.Graph.Edges() {
				if edgeWeight(w) > least {
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

// leastOf returns a number that no more than limit of all exceed; 0 if that is all of them. It sorts them.
func leastOf(all []uint64, limit int) uint64 {
	if len(all) <= limit {
		return 0
	}
	slices.SortFunc(all, func(a, b uint64) int { return cmp.Compare(b, a) })
	return all[limit]
}

// prune returns a tree of the contexts whose totals exceed least. The others become a frame below the nearest caller that is kept. It also
// returns the place of each context in the new tree.
func prune(t *cct.Tree[symbolize.Symbol], totals []uint64, least uint64) (*cct.Tree[symbolize.Symbol], []cct.NodeID) {
	out := new(cct.Tree[symbolize.Symbol])
	place := make([]cct.NodeID, t.Len()+1)
	cut := make([]bool, t.Len()+1) // it is part of a rare one
	for id, n := range t.Nodes() {
		switch {
		case id == cct.Root:
			out.Add(nil, n.Self)
		case cut[n.Parent]:
			place[id], cut[id] = out.AddBelow(out.Node(place[n.Parent]).Parent, rare, n.Self, 0), true
		case totals[id] > least || n.Key == rare:
			place[id] = out.AddBelow(place[n.Parent], n.Key, n.Self, n.Entered)
		default:
			place[id], cut[id] = out.AddBelow(place[n.Parent], rare, n.Self, 0), true
		}
	}
	return out, place
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
