package digest

import (
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// A Part is CPU time, or one kind of events. A digest of it has no calls, and a process in it has
// one thread.
type Part struct {
	Events bool              // the part is events of Kind, not CPU time
	Kind   profile.EventKind // used only with Events
	// Labels returns the labels that distinguish rows, given those of a row, and reports whether
	// the part has the row. It must be there if Events is set, and may be called more than once for
	// a row.
	Labels func(*profile.EventLabels) (profile.EventLabels, bool)
}

// AddProfile adds a closed window, which is not changed.
func (m *Merger) AddProfile(w *profile.Profile) {
	m.begin(w, w.Start.Add(w.Duration))
	for _, one := range w.Processes {
		p := m.process(one)
		if m.part == nil || !m.part.Events {
			m.addThreads(p, one.Threads, w.Period)
		}
		for _, e := range one.Events {
			if m.part == nil || m.part.Events {
				m.addEvents(m.events(p, e.Kind), e)
			}
		}
		for _, c := range one.Calls {
			if m.part == nil {
				p.addCalls(m.Names.calls(c))
			}
		}
	}
	m.bound()
}

func (m *Merger) addThreads(p *mergedProcess, threads []*profile.Thread, period time.Duration) {
	for _, t := range threads {
		if t.Unseen == 0 && (t.Tree == nil || t.Tree.Len() == 0 && t.Tree.Total() == 0) {
			continue
		}
		var key ThreadKey
		if m.part == nil {
			key = ThreadKey{m.Names.group(t.Name), t.Stopped, t.Context}
		}
		sum := m.thread(p, key)
		m.graftTree(&sum.tree, t.Tree, nil)
		sum.add(cpuTimeOf(t, period))
	}
}

// addEvents adds the events of a kind. Of other kinds than that of the part, it is only known that
// they were recorded.
func (m *Merger) addEvents(sum *mergedEvents, e *profile.Events) {
	if m.part != nil && m.part.Kind != e.Kind {
		return
	}
	sum.addAbout(e.Basis, e.Coverage)
	place := m.graftTree(&sum.tree, e.Tree, m.part.wanted(e))
	for i := range e.Rows {
		from := &e.Rows[i]
		labels, wanted := from.EventLabels, true
		if m.part != nil {
			labels, wanted = m.part.Labels(&from.EventLabels)
		}
		if !wanted {
			continue
		}
		r := Row{m.Names.key(from.Thread, &labels), from.Events, from.Values}
		if int(from.Context) < len(place) {
			r.Context = place[from.Context]
		}
		sum.addRow(&r)
	}
}

// wanted returns, by context, whether a row of the part has it as a caller or itself. It is nil for
// all.
func (p *Part) wanted(e *profile.Events) []bool {
	if p == nil || e.Tree == nil {
		return nil
	}
	wanted := make([]bool, e.Tree.Len()+1)
	for i := range e.Rows {
		if _, ok := p.Labels(&e.Rows[i].EventLabels); ok && int(e.Rows[i].Context) < len(wanted) {
			wanted[e.Rows[i].Context] = true
		}
	}
	for id := e.Tree.Len(); id > 0; id-- { // callees before callers
		if wanted[id] {
			wanted[e.Tree.Node(cct.NodeID(id)).Parent] = true
		}
	}
	return wanted
}

// graftTree is graft for a tree of a closed window, which may be nil. If wanted is not nil, it has
// the contexts to add, with all of their callers.
func (m *Merger) graftTree(to *cct.Tree[FrameID], from *cct.Tree[symbol.Symbol], wanted []bool) []cct.NodeID {
	if from == nil {
		return nil
	}
	m.place = slices.Grow(m.place[:0], from.Len()+1)[:from.Len()+1]
	for id, n := range from.Nodes() {
		switch {
		case id == cct.Root:
			m.place[0] = to.Add(nil, n.Self)
		case wanted == nil || wanted[id]:
			m.place[id] = to.AddBelow(m.place[n.Parent], m.Names.Frame(n.Key), n.Self, n.Entered)
		}
	}
	return m.place
}

func cpuTimeOf(t *profile.Thread, period time.Duration) (c CPUTime) {
	if t.Tree != nil {
		c.Sampled = t.Time(t.Tree.Total(), period)
	}
	switch t.UnseenIn {
	case profile.Waking:
		c.Waking = float64(t.Unseen)
	case profile.NotSampled:
		c.NotSampled = float64(t.Unseen)
	}
	return c
}

// calls returns a call graph with frames as Names have them.
func (n *Names) calls(c *profile.Calls) *profile.Calls {
	of := *c
	named := func(e profile.Edge) profile.Edge {
		e.Caller, e.Callee = n.Frames[n.Frame(e.Caller)], n.Frames[n.Frame(e.Callee)]
		return e
	}
	of.Graph, of.Intervals = cct.MapGraph(c.Graph, named), nil
	for e, within := range c.Intervals {
		if of.Intervals == nil {
			of.Intervals = make(map[profile.Edge]profile.Interval)
		}
		e = named(e)
		of.Intervals[e] = of.Intervals[e].Add(within)
	}
	return &of
}

// Profile is Finish with names. Trees have their contexts in the same places.
func (m *Merger) Profile(limit int) *profile.Profile {
	m.finish(limit)
	p := m.sum
	var room Arena
	for _, from := range m.processes {
		to := from.Process
		for _, t := range from.threads {
			to.Threads = append(to.Threads, t.threads(profile.Thread{Name: m.Names.Strings[t.Name], Stopped: t.Stopped,
				Context: t.Context, Tree: m.Names.stacks(&t.tree)})...)
		}
		for _, e := range from.events {
			if e == nil {
				continue
			}
			of := &profile.Events{Kind: e.Kind, Tree: m.Names.stacks(&e.tree), Basis: e.Basis, Coverage: e.Coverage,
				Rows: make([]profile.EventRow, len(e.Rows))}
			room.Reset()
			for i, r := range byContext(e.Rows, e.tree.Len()+1, &room) {
				of.Rows[i] = m.Names.row(&r)
			}
			to.Events = append(to.Events, of)
		}
		p.Processes = append(p.Processes, &to)
	}
	return &p
}

// threads returns the thread with that tree as profiles have it: twice if there is CPU time without
// samples of both kinds.
func (c *CPUTime) threads(t profile.Thread) []*profile.Thread {
	if n := t.Tree.Total(); n > 0 && c.Sampled > 0 {
		t.SampleTime = c.Sampled / float64(n)
	}
	list := []*profile.Thread{&t}
	if c.Waking >= 1 {
		t.Unseen, t.UnseenIn = time.Duration(c.Waking), profile.Waking
	}
	if c.NotSampled >= 1 {
		list = append(list, &profile.Thread{
			Name: t.Name, Tree: new(cct.Tree[symbol.Symbol]), Unseen: time.Duration(c.NotSampled),
			UnseenIn: profile.NotSampled,
		})
	}
	return list
}

// stacks returns a tree with names.
func (n *Names) stacks(t *cct.Tree[FrameID]) *cct.Tree[symbol.Symbol] {
	one := make([]symbol.Symbol, 1)
	return cct.Map(t, func(id FrameID) []symbol.Symbol {
		one[0] = n.Frames[id]
		return one
	})
}

// key returns that of a row as profiles have it, without its context.
func (n *Names) key(thread string, l *profile.EventLabels) RowKey {
	return RowKey{
		Thread: n.group(thread), Class: n.String(l.Class), Place: n.String(l.Place), What: n.String(l.What),
		Collector: n.String(l.Collector), Field: n.String(l.Field), Probe: n.String(l.Probe),
		Bucket: n.String(l.Value), Offset: l.Offset,
	}
}

// row is the inverse of key, of a row.
func (n *Names) row(r *Row) profile.EventRow {
	return profile.EventRow{
		Context: r.Context, Thread: n.Strings[r.Thread], Events: r.Events, Values: r.Values,
		EventLabels: profile.EventLabels{
			Class: n.Strings[r.Class], Place: n.Strings[r.Place], What: n.Strings[r.What],
			Collector: n.Strings[r.Collector], Field: n.Strings[r.Field], Offset: r.Offset,
			Probe: n.Strings[r.Probe], Value: n.Strings[r.Bucket],
		},
	}
}
