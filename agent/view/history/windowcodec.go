package history

import (
	"maps"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/digest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

const (
	maxCauses  = 64 // causes of a loss
	maxExtents = 64 // extents of a process
)

// window is a window that a digest.Merger made.
func (c *codec) window(w *digest.Window) {
	number(c, &w.Period)
	c.str(&w.Event)
	small(c, &w.Unit, profile.CallCounts)
	c.counts(&w.Counts)
	c.eventCounts(&w.EventCounts)
	list(c, &w.Comments, digest.MaxTexts, c.str)
	n := c.length(len(w.Processes), digest.MaxProcesses+1)
	for i := 0; i < n && c.err == nil; i++ {
		one := new(digest.Process)
		if !c.reads {
			one = w.Processes[i]
		}
		if c.process(one) && c.reads {
			w.Processes = append(w.Processes, one)
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
func (c *codec) process(p *digest.Process) (wanted bool) {
	number(c, &p.PID)
	c.str(&p.Comm)
	c.str(&p.Runtime)
	c.str(&p.Service)
	wanted = c.want.wants(&p.Process)
	c.block(wanted, func() {
		c.str(&p.VM)
		c.str(&p.Executable.File)
		c.str(&p.Executable.BuildID)
		list(c, &p.Labels, digest.MaxTexts, func(l *profile.Label) {
			c.str(&l.Name)
			c.str(&l.Value)
		})
		list(c, &p.Notes, digest.MaxTexts, c.str)
		c.block(c.want.has(sink.Time), func() {
			list(c, &p.Threads, 2*int(profile.Certainties)*(digest.MaxThreads+1), c.thread)
			c.contexts(&p.Contexts)
		})
		c.block(c.want.has(sink.CallCounts), func() { pointers(c, &p.Calls, digest.MaxTexts, c.graph) })
		list(c, &p.Events, int(profile.EventKinds), c.events)
		if !c.reads || c.err == nil && len(c.buf) > 0 { // earlier versions of the agent wrote none
			list(c, &p.Extents, maxExtents, c.extent)
		}
		if !c.reads || c.err == nil && len(c.buf) > 0 { // as above
			c.block(c.want.has(sink.Time), func() {
				for i := range p.Threads {
					t := &p.Threads[i]
					for _, v := range []*float64{&t.Sampled, &t.Waking, &t.NotSampled} {
						c.float(v)
					}
				}
			})
		}
	})
	if c.reads && c.err == nil {
		p.Events = slices.DeleteFunc(p.Events, func(e digest.Events) bool { return e.Tree == nil }) // was not wanted
	}
	return wanted
}

func (c *codec) extent(e *profile.Extent) {
	for _, s := range []*string{&e.Subject, &e.What, &e.Unit, &e.Source} {
		c.str(s)
	}
	c.float(&e.There)
	c.float(&e.Observed)
	list(c, &e.Missed, digest.MaxTexts, func(m *profile.Missed) {
		c.float(&m.Amount)
		c.str(&m.Why)
	})
}

func (c *codec) thread(t *digest.Thread) {
	c.name(&t.Name)
	c.flag(&t.Stopped)
	small(c, &t.Context, profile.Certainties-1)
	c.tree(&t.Tree)
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
func (c *codec) tree(p *[]digest.Node) {
	nodes := c.count(max(len(*p)-1, 0), 4*digest.MaxContexts)
	if c.err != nil {
		return
	}
	if c.reads {
		*p = c.room.Nodes(nodes + 1)
		clear(*p)
	}
	list := *p
	for id := 1; id <= nodes; id++ {
		up := uint64(id) - uint64(list[id].Parent)
		if c.u(&up); c.err == nil && (up == 0 || up > uint64(id)) {
			c.fail()
		}
		list[id].Parent = cct.NodeID(uint64(id) - up)
	}
	last := 0
	for id := 1; id <= nodes; id++ {
		c.frame(&list[id].Frame, &last)
	}
	any := false
	for id := range list {
		c.u(&list[id].Self)
		any = any || list[id].Entered > 0
	}
	c.flag(&any)
	for id := 1; any && id <= nodes; id++ {
		c.u(&list[id].Entered)
	}
}

func (c *codec) events(e *digest.Events) {
	small(c, &e.Kind, profile.EventKinds-1)
	if c.err != nil {
		return
	}
	c.block(c.want.has(sink.OfEvents(e.Kind)), func() {
		c.tree(&e.Tree)
		rows := c.count(len(e.Rows), 2*digest.MaxContexts)
		if c.reads {
			e.Rows = c.room.Rows(rows)
			clear(e.Rows)
		}
		for i := 0; i < rows && c.err == nil; i++ {
			c.row(&e.Rows[i], e)
		}
		list(c, &e.Basis, digest.MaxTexts, c.str)
		known := e.Coverage != nil
		if c.flag(&known); !known || c.err != nil {
			return
		}
		if c.reads {
			e.Coverage = new(profile.Coverage)
		}
		v := e.Coverage
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

func (c *codec) row(r *digest.Row, of *digest.Events) {
	small(c, &r.Context, cct.NodeID(max(len(of.Tree), 1)-1))
	c.name(&r.Thread)
	c.name(&r.Class)
	c.name(&r.Place)
	c.name(&r.What)
	c.name(&r.Collector)
	c.name(&r.Field)
	c.name(&r.Probe)
	c.name(&r.Bucket)
	number(c, &r.Offset)
	c.u(&r.Events)
	for i := range of.Kind.Values() {
		c.float(&r.Values[i])
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
		g.Graph = &profile.Graph{Limit: digest.MaxContexts}
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
	edges = c.count(edges, digest.MaxContexts)
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
	var id digest.FrameID
	if !c.reads {
		id = c.tables.names.Frame(*s)
	}
	if c.frame(&id, last); c.reads && c.err == nil {
		*s = c.tables.names.Frames[id]
	}
}
