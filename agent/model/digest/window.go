package digest

import (
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

// A Window is a profile whose strings and frames are IDs, and whose trees are lists.
type Window struct {
	profile.Profile
	Processes []*Process // instead of the profile's
}

// A Process is one process in a Window.
type Process struct {
	profile.Process
	Threads []Thread // instead of those of a profile, as Events
	Events  []Events
}

// A Thread is one thread in a Process, or several.
type Thread struct {
	ThreadKey
	Tree []Node
	CPUTime
}

// A CPUTime is the CPU time of a thread in ns: what its samples stand for, and
// profile.Thread.Unseen by its frame. It is 0 in windows of earlier versions of the agent.
type CPUTime struct{ Sampled, Waking, NotSampled float64 }

func (c *CPUTime) add(o CPUTime) {
	c.Sampled += o.Sampled
	c.Waking += o.Waking
	c.NotSampled += o.NotSampled
}

// A ThreadKey distinguishes the threads of a process.
type ThreadKey struct {
	Name    StringID // name of the group
	Stopped bool
	Context profile.Certainty
}

// Events are the events of one kind in one process.
type Events struct {
	Kind     profile.EventKind
	Tree     []Node // nil if nobody wanted to read it
	Rows     []Row
	Basis    []string
	Coverage *profile.Coverage
}

// A Node is a context of a tree. The first one of a tree is the root, and each comes after its
// caller.
type Node struct {
	Parent        cct.NodeID
	Frame         FrameID
	Self, Entered uint64
}

// A Row sums up the events of one context with the same labels.
type Row struct {
	RowKey
	Events uint64
	Values [profile.MaxEventValues]float64
}

// A RowKey distinguishes rows: see profile.EventRow. Bucket is EventLabels.Value.
type RowKey struct {
	Context                                                     cct.NodeID
	Thread, Class, Place, What, Collector, Field, Probe, Bucket StringID
	Offset                                                      int32
}

// add adds the events of another row.
func (r *Row) add(o *Row) {
	r.Events += o.Events
	for v := range r.Values {
		r.Values[v] += o.Values[v]
	}
}

// An Arena is room for the contexts and rows of a Window, which is used again for the next one.
type Arena struct {
	nodes []Node
	rows  []Row
}

// maxArena bounds what an arena keeps from window to window, in contexts and in rows.
const maxArena = 8 * MaxContexts

// Reset makes the room free.
func (a *Arena) Reset() {
	a.nodes, a.rows = a.nodes[:0], a.rows[:0]
	if cap(a.nodes) > maxArena {
		a.nodes = nil
	}
	if cap(a.rows) > maxArena {
		a.rows = nil
	}
}

// Nodes returns room for so many contexts, with what was there before.
func (a *Arena) Nodes(n int) []Node { return take(&a.nodes, n) }

// Rows returns room for so many rows, with what was there before.
func (a *Arena) Rows(n int) []Row { return take(&a.rows, n) }

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
