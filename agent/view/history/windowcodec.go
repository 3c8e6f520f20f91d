package history

import (
	"maps"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

const (
	maxCauses  = 64 // causes of a loss
	maxExtents = 64 // extents of a process
)

// window is a window that a merger made.
func (c *codec) window(w *window) {
	number(c, &w.Period)
	c.str(&w.Event)
	small(c, &w.Unit, profile.CallCounts)
	c.counts(&w.Counts)
	c.eventCounts(&w.EventCounts)
	list(c, &w.Comments, maxTexts, c.str)
	n := c.length(len(w.processes), maxProcesses+1)
	for i := 0; i < n && c.err == nil; i++ {
		one := new(process)
		if !c.reads {
			one = w.processes[i]
		}
		if c.process(one) && c.reads {
			w.processes = append(w.processes, one)
		}
	}
	if c.reads && c.err == nil && (w.Period < 0 || w.Period > time.Hour) {
		c.fail()
	}
}

func (c *codec) counts(n *profile.Counts) {
	for _, v := range []*uint64{&n.Attempted, &n.Delivered, &n.Folded, &n.Idle, &n.Filtered, &n.Stale, &n.Unknown} {
		c.u(v)
	}
	for _, v := range []*map[string]uint64{&n.Dropped, &n.Discarded, &n.Truncated} {
		c.causes(v)
	}
}

func (c *codec) eventCounts(n *profile.EventCounts) {
	for _, v := range []*uint64{&n.Attempted, &n.Delivered, &n.Folded, &n.Hits, &n.Unattached} {
		c.u(v)
	}
	for _, v := range []*map[string]uint64{&n.Dropped, &n.Discarded} {
		c.causes(v)
	}
	number(c, &n.Cost)
}

// causes are counts by cause, without those that are 0.
func (c *codec) causes(p *map[string]uint64) {
	var keys []string
	if !c.reads {
		keys = slices.DeleteFunc(slices.Sorted(maps.Keys(*p)), func(k string) bool { return (*p)[k] == 0 })
	}
	n := c.length(len(keys), maxCauses)
	for i := 0; i < n && c.err == nil; i++ {
		var (
			key   string
			count uint64
		)
		if !c.reads {
			key, count = keys[i], (*p)[keys[i]]
		}
		c.str(&key)
		c.u(&count)
		if c.reads && c.err == nil {
			if *p == nil {
				*p = make(map[string]uint64)
			}
			(*p)[key] += count
		}
	}
}

// process is a process, and reports whether it is wanted.
func (c *codec) process(p *process) (wanted bool) {
	number(c, &p.PID)
	c.str(&p.Comm)
	c.str(&p.Runtime)
	c.str(&p.Service)
	wanted = c.want.wants(&p.Process)
	c.block(wanted, func() {
		c.str(&p.VM)
		c.str(&p.Executable.File)
		c.str(&p.Executable.BuildID)
		list(c, &p.Labels, maxTexts, func(l *profile.Label) {
			c.str(&l.Name)
			c.str(&l.Value)
		})
		list(c, &p.Notes, maxTexts, c.str)
		c.block(c.want.has(sink.Time), func() {
			list(c, &p.threads, 2*int(profile.Certainties)*(maxThreads+1), c.thread)
			c.contexts(&p.Contexts)
		})
		c.block(c.want.has(sink.CallCounts), func() { pointers(c, &p.Calls, maxTexts, c.graph) })
		list(c, &p.events, int(profile.EventKinds), c.events)
		if !c.reads || c.err == nil && len(c.buf) > 0 { // earlier versions of the agent wrote none
			list(c, &p.Extents, maxExtents, c.extent)
		}
		if !c.reads || c.err == nil && len(c.buf) > 0 { // as above
			c.block(c.want.has(sink.Time), func() {
				for i := range p.threads {
					t := &p.threads[i]
					for _, v := range []*float64{&t.sampled, &t.waking, &t.notSampled} {
						c.float(v)
					}
				}
			})
		}
	})
	if c.reads && c.err == nil {
		p.events = slices.DeleteFunc(p.events, func(e events) bool { return e.tree == nil }) // was not wanted
	}
	return wanted
}

func (c *codec) extent(e *profile.Extent) {
	for _, s := range []*string{&e.Subject, &e.What, &e.Unit, &e.Source} {
		c.str(s)
	}
	c.float(&e.There)
	c.float(&e.Observed)
	list(c, &e.Missed, maxTexts, func(m *profile.Missed) {
		c.float(&m.Amount)
		c.str(&m.Why)
	})
}

func (c *codec) thread(t *thread) {
	c.name(&t.name)
	c.flag(&t.stopped)
	small(c, &t.context, profile.Certainties-1)
	c.tree(&t.tree)
}

// contexts are those of a process of which not every stack was walked.
func (c *codec) contexts(p **profile.Contexts) {
	known := *p != nil
	if c.flag(&known); !known || c.err != nil {
		return
	}
	if c.reads {
		*p = new(profile.Contexts)
	}
	x := *p
	small(c, &x.Mode, profile.ContextChain)
	for _, v := range []*uint64{&x.Walked, &x.Linked, &x.Ambiguous, &x.Fitted, &x.Unplaced} {
		c.u(v)
	}
	for i := range x.ByDepth {
		c.u(&x.ByDepth[i])
		c.u(&x.BySite[i])
	}
	number(c, &x.Nodes)
	number(c, &x.Shared)
	number(c, &x.Methods)
}

// tree is a calling context tree, one field of all contexts after the other: like next to like
// compresses well.
func (c *codec) tree(p *[]node) {
	nodes := c.count(max(len(*p)-1, 0), 4*maxContexts)
	if c.err != nil {
		return
	}
	if c.reads {
		*p = take(&c.room.nodes, nodes+1)
		clear(*p)
	}
	list := *p
	for id := 1; id <= nodes; id++ {
		up := uint64(id) - uint64(list[id].parent)
		if c.u(&up); c.err == nil && (up == 0 || up > uint64(id)) {
			c.fail()
		}
		list[id].parent = cct.NodeID(uint64(id) - up)
	}
	last := 0
	for id := 1; id <= nodes; id++ {
		c.frame(&list[id].frame, &last)
	}
	any := false
	for id := range list {
		c.u(&list[id].self)
		any = any || list[id].entered > 0
	}
	c.flag(&any)
	for id := 1; any && id <= nodes; id++ {
		c.u(&list[id].entered)
	}
}

func (c *codec) events(e *events) {
	small(c, &e.kind, profile.EventKinds-1)
	if c.err != nil {
		return
	}
	c.block(c.want.has(sink.OfEvents(e.kind)), func() {
		c.tree(&e.tree)
		rows := c.count(len(e.rows), 2*maxContexts)
		if c.reads {
			e.rows = take(&c.room.rows, rows)
			clear(e.rows)
		}
		for i := 0; i < rows && c.err == nil; i++ {
			c.row(&e.rows[i], e)
		}
		list(c, &e.basis, maxTexts, c.str)
		known := e.coverage != nil
		if c.flag(&known); !known || c.err != nil {
			return
		}
		if c.reads {
			e.coverage = new(profile.Coverage)
		}
		v := e.coverage
		for _, d := range []*time.Duration{&v.Time, &v.Observed, &v.Missed} {
			number(c, d)
		}
		number(c, &v.Slices)
		c.u(&v.Events)
		for _, f := range []*float64{&v.Lost, &v.Drawn, &v.Cut, &v.Chosen, &v.Bias} {
			c.float(f)
		}
	})
}

func (c *codec) row(r *row, of *events) {
	small(c, &r.context, cct.NodeID(max(len(of.tree), 1)-1))
	c.name(&r.thread)
	c.name(&r.class)
	c.name(&r.place)
	c.name(&r.what)
	c.name(&r.collector)
	c.name(&r.field)
	c.name(&r.probe)
	c.name(&r.bucket)
	number(c, &r.offset)
	c.u(&r.events)
	for i := range of.kind.Values() {
		c.float(&r.values[i])
	}
}

// graph is a call graph. Its edges are written in the order of the graph's map: which one does not
// matter.
func (c *codec) graph(g *profile.Calls) {
	c.str(&g.Engine)
	small(c, &g.Basis, profile.Unmeasured)
	number(c, &g.Rate.Hz)
	number(c, &g.Rate.Stride)
	number(c, &g.Rate.Samples)
	if c.reads {
		g.Graph = &profile.Graph{Limit: maxContexts}
	}
	last := 0
	edge := func(e *profile.Edge, weight *float64) {
		c.method(&e.Caller, &last)
		c.method(&e.Callee, &last)
		number(c, &e.Site.Line)
		number(c, &e.Site.Offset)
		c.float(weight)
		within, known := g.Intervals[*e]
		if c.flag(&known); known {
			c.float(&within.Low)
			c.float(&within.High)
		}
		if !c.reads || c.err != nil {
			return
		}
		g.Graph.Add(*e, max(*weight, 0))
		if !known {
			return
		}
		if g.Intervals == nil {
			g.Intervals = make(map[profile.Edge]profile.Interval)
		}
		g.Intervals[*e] = within
	}
	edges := 0
	if !c.reads {
		edges = g.Graph.Len()
	}
	edges = c.count(edges, maxContexts)
	if !c.reads {
		for e, w := range g.Graph.Edges() {
			edge(&e, &w)
		}
		return
	}
	for i := 0; i < edges && c.err == nil; i++ {
		var (
			e profile.Edge
			w float64
		)
		edge(&e, &w)
	}
}

// method is a reference to a caller or callee.
func (c *codec) method(s *symbol.Symbol, last *int) {
	var id frameID
	if !c.reads {
		id = c.tables.names.record(*s)
	}
	if c.frame(&id, last); c.reads && c.err == nil {
		*s = c.tables.names.symbol(id)
	}
}
