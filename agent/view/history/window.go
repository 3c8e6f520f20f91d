package history

import (
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// A window is a profile in the form in which it is stored: strings and frames are IDs, and trees
// are lists.
type window struct {
	profile.Profile // without processes
	processes       []*process
}

type process struct {
	profile.Process // without threads and events
	threads         []thread
	events          []events
}

type thread struct {
	threadKey
	tree []node
	cpuTime
}

// A cpuTime is the CPU time of a thread in ns: what its samples stand for, and
// profile.Thread.Unseen by its frame. It is 0 in windows of earlier versions of the agent.
type cpuTime struct{ sampled, waking, notSampled float64 }

func cpuTimeOf(t *profile.Thread, period time.Duration) (c cpuTime) {
	c.sampled = t.Time(t.Tree.Total(), period)
	switch t.UnseenIn {
	case profile.Waking:
		c.waking = float64(t.Unseen)
	case profile.NotSampled:
		c.notSampled = float64(t.Unseen)
	}
	return c
}

func (c *cpuTime) add(o cpuTime) {
	c.sampled += o.sampled
	c.waking += o.waking
	c.notSampled += o.notSampled
}

// threads returns the thread with that tree as profiles have it: twice if there is CPU time without
// samples of both kinds.
func (c *cpuTime) threads(t profile.Thread) []*profile.Thread {
	if n := t.Tree.Total(); n > 0 && c.sampled > 0 {
		t.SampleTime = c.sampled / float64(n)
	}
	list := []*profile.Thread{&t}
	if c.waking >= 1 {
		t.Unseen, t.UnseenIn = time.Duration(c.waking), profile.Waking
	}
	if c.notSampled >= 1 {
		list = append(list, &profile.Thread{
			Name: t.Name, Tree: new(cct.Tree[symbol.Symbol]), Unseen: time.Duration(c.notSampled),
			UnseenIn: profile.NotSampled,
		})
	}
	return list
}

// A threadKey distinguishes the threads of a process.
type threadKey struct {
	name    stringID
	stopped bool
	context profile.Certainty
}

type events struct {
	kind     profile.EventKind
	tree     []node // nil if the kind is not wanted
	rows     []row
	basis    []string
	coverage *profile.Coverage
}

// A node is a context of a tree. The first one of a tree is the root, and each comes after its
// caller.
type node struct {
	parent        cct.NodeID
	frame         frameID
	self, entered uint64
}

// A row sums up the events of one context with the same labels.
type row struct {
	rowKey
	events uint64
	values [profile.MaxEventValues]float64
}

type rowKey struct {
	context                                                     cct.NodeID
	thread, class, place, what, collector, field, probe, bucket stringID
	offset                                                      int32
}

// add adds the events of another row.
func (r *row) add(o *row) {
	r.events += o.events
	for v := range r.values {
		r.values[v] += o.values[v]
	}
}

// An arena is room for the contexts and rows of a window, which is used again for the next one.
type arena struct {
	nodes []node
	rows  []row
}

// maxArena bounds what an arena keeps from window to window, in contexts and in rows.
const maxArena = 8 * maxContexts

func (a *arena) reset() {
	a.nodes, a.rows = a.nodes[:0], a.rows[:0]
	if cap(a.nodes) > maxArena {
		a.nodes = nil
	}
	if cap(a.rows) > maxArena {
		a.rows = nil
	}
}

// take returns room for n elements, with what was there before. What was taken earlier stays where
// it is.
func take[T any](from *[]T, n int) []T {
	if cap(*from)-len(*from) < n {
		*from = make([]T, 0, max(n, 2*cap(*from), 1<<10))
	}
	at := len(*from)
	*from = (*from)[:at+n]
	return (*from)[at : at+n : at+n]
}

// window returns a closed window in its stored form.
func (n *names) window(p *profile.Profile, room *arena) *window {
	w := &window{Profile: *p}
	w.Processes = nil
	for _, from := range p.Processes {
		to := &process{Process: *from}
		to.Threads, to.Events, to.Versions, to.Inlining = nil, nil, nil, nil
		to.Executable = symbol.Mapping{File: from.Executable.File, BuildID: from.Executable.BuildID}
		for _, t := range from.Threads {
			if t.Tree != nil && (t.Tree.Len() > 0 || t.Tree.Total() > 0 || t.Unseen > 0) {
				to.threads = append(to.threads, thread{threadKey{n.group(t.Name), t.Stopped, t.Context},
					n.tree(t.Tree, room), cpuTimeOf(t, p.Period)})
			}
		}
		for _, e := range from.Events {
			to.events = append(to.events, n.events(e, room))
		}
		to.Calls = nil
		for _, c := range from.Calls {
			to.Calls = append(to.Calls, n.calls(c))
		}
		w.processes = append(w.processes, to)
	}
	return w
}

func (n *names) tree(t *cct.Tree[symbol.Symbol], room *arena) []node {
	list := take(&room.nodes, t.Len()+1)
	for id, from := range t.Nodes() {
		to := node{parent: from.Parent, self: from.Self, entered: from.Entered}
		if id != cct.Root {
			to.frame = n.record(from.Key)
		}
		list[id] = to
	}
	return list
}

func (n *names) events(e *profile.Events, room *arena) events {
	of := events{kind: e.Kind, basis: e.Basis, coverage: e.Coverage}
	if e.Tree != nil {
		of.tree = n.tree(e.Tree, room)
	} else {
		of.tree = take(&room.nodes, 1)
		of.tree[0] = node{}
	}
	of.rows = take(&room.rows, len(e.Rows))
	for i := range e.Rows {
		from := &e.Rows[i]
		key := rowKey{
			context: from.Context, thread: n.group(from.Thread), class: n.string(from.Class),
			place: n.string(from.Place), what: n.string(from.What),
			collector: n.string(from.Collector), field: n.string(from.Field), probe: n.string(from.Probe),
			bucket: n.string(from.Value), offset: from.Offset,
		}
		if int(key.context) >= len(of.tree) {
			key.context = cct.Root
		}
		of.rows[i] = row{key, from.Events, from.Values}
	}
	return of
}

// calls returns a call graph with frames as they are stored.
func (n *names) calls(c *profile.Calls) *profile.Calls {
	of := *c
	asStored := func(e profile.Edge) profile.Edge {
		e.Caller, e.Callee = n.symbol(n.record(e.Caller)), n.symbol(n.record(e.Callee))
		return e
	}
	of.Graph, of.Intervals = cct.MapGraph(c.Graph, asStored), nil
	for e, within := range c.Intervals {
		if of.Intervals == nil {
			of.Intervals = make(map[profile.Edge]profile.Interval)
		}
		e = asStored(e)
		of.Intervals[e] = of.Intervals[e].Add(within)
	}
	return &of
}

// profile returns a window as a profile.
func (n *names) profile(w *window) *profile.Profile {
	p := w.Profile
	for _, from := range w.processes {
		to := from.Process
		for i := range from.threads {
			t := &from.threads[i]
			to.Threads = append(to.Threads, t.threads(profile.Thread{Name: n.strings[t.name], Stopped: t.stopped,
				Context: t.context, Tree: n.stacks(t.tree)})...)
		}
		for i := range from.events {
			e := &from.events[i]
			of := &profile.Events{Kind: e.kind, Tree: n.stacks(e.tree), Basis: e.basis, Coverage: e.coverage}
			for j := range e.rows {
				r := &e.rows[j]
				of.Rows = append(of.Rows, profile.EventRow{
					Context: r.context, Thread: n.strings[r.thread], Events: r.events, Values: r.values,
					EventLabels: profile.EventLabels{
						Class: n.strings[r.class], Place: n.strings[r.place], What: n.strings[r.what],
						Collector: n.strings[r.collector],
						Field:     n.strings[r.field], Offset: r.offset, Probe: n.strings[r.probe],
						Value: n.strings[r.bucket],
					},
				})
			}
			to.Events = append(to.Events, of)
		}
		p.Processes = append(p.Processes, &to)
	}
	return &p
}

// stacks returns a tree in which no context occurs twice, as mergers make them, with its contexts
// in the same places.
func (n *names) stacks(list []node) *cct.Tree[symbol.Symbol] {
	t := &cct.Tree[symbol.Symbol]{Limit: max(len(list), 1)}
	for id := range list {
		if of := &list[id]; id == 0 {
			t.Add(nil, of.self)
		} else {
			t.AddBelow(of.parent, n.symbol(of.frame), of.self, of.entered)
		}
	}
	return t
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
