// Package flame makes flame graphs of stored profiles, adds them up, and finds out why one time
// differs from another (Explainer).
//
//	graphs, err := flame.Read(p)
//	data, err := json.Marshal(graphs[0].Cut(5000))
package flame

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

// A Graph is what the pages draw of one kind of values: a tree of processes, thread groups and
// frames, the calls between methods where they were counted, and the course of the values over
// time. It has neither addresses nor thread ids, so it is much smaller than the profile. Several
// can be merged, and one can be the baseline of another.
//
// A Graph is not safe for concurrent use, unless nobody changes it.
type Graph struct {
	Kind, Title, Unit string // "cpu", "CPU time", "nanoseconds"
	Start             time.Time
	Duration          time.Duration // sum over all windows
	Notes             []string      // what a reader must know, one sentence each

	// Verdicts say of a comparison which methods certainly differ. Without any, readers use the
	// interval of each share.
	Verdicts *Verdicts

	effect float64 // what variances are multiplied by, at least 1, or 0 if parts have no intervals: see events.EffectOf
	frameTable
	tree  *cct.Tree[int32] // contexts, by the places of their frames; their weights are in nodes
	nodes []flameNode      // by cct.NodeID
	calls map[flameCall]float64
	bars  []flameBar
	base  *flameBase
	lanes []stored.Lanes // what threads did over time, if waits were recorded
	slow  *flameSlow     // the slowest invocations of a method; nil if none was followed. It does not change
}

// Verdicts are more, less, same or undecided, by method: with its callees (Total), and by itself
// (Own). A method that is missing is undecided.
type Verdicts struct {
	Total map[string]string `json:"total"`
	Own   map[string]string `json:"own"`
}

// A flameBase is what a baseline adds: its nodes' values are in the second column.
type flameBase struct {
	start    time.Time
	duration time.Duration
}

// A Process is one process in a Graph.
type Process struct {
	PID     int64   `json:"pid"`
	Comm    string  `json:"comm"`
	Service string  `json:"service"` // Comm if the profile has no service
	Runtime string  `json:"runtime,omitempty"`
	Value   float64 `json:"value"` // in the unit of its Graph
}

type flameNode struct {
	// value and count are the sums of exactly this context, here and in the baseline: values, and
	// samples or observed events.
	value, count [2]float64
	approx       float64 // part of value whose callers are not certain
	inner        float64 // part of value whose innermost method, which is this one, is not certain
	// line is the line of most of the weight, by majority vote (Boyer and Moore): votes is what the
	// others have not outvoted.
	line  int32
	votes float64
	tiers [tiers]float64 // parts of the value with all descendants
}

// A flameCall is a call from one place in a method of a process to another method.
type flameCall struct {
	process        int32 // its frame
	caller, callee int32
	site           profile.Site
}

// compare orders calls of equal numbers.
func (c flameCall) compare(o flameCall) int {
	return cmp.Or(cmp.Compare(c.caller, o.caller), cmp.Compare(c.callee, o.callee),
		cmp.Compare(c.site.Line, o.site.Line), cmp.Compare(c.site.Offset, o.site.Offset))
}

// A flameBar is the values of one window by process and by what ran.
type flameBar struct {
	start    time.Time
	duration time.Duration
	of       map[int32]*[classes]float64 // by the process's frame
	// cells are the values by node, if the Graph is of one profile with several windows. Merged
	// ones have none.
	cells map[cct.NodeID]flameCell
}

// Classes of what a thread did when it was sampled: those of profile.CodeKind, and one more.
const (
	classUnknown = int(profile.CodeKinds)
	classes      = classUnknown + 1
)

// ClassName is the name of a class of a timeline, whose number is a profile.CodeKind or
// profile.CodeKinds.
func ClassName(class int) string {
	if class >= classUnknown {
		return "unknown"
	}
	return profile.CodeKind(class).String()
}

const (
	maxFlameNodes = 1 << 19
	maxFlameDepth = 400 // frames of a stack; what is deeper becomes one frame
	maxFlameCalls = 20_000
	deepFrames    = "[deeper frames]"
)

func newFlame(kind, title, unit string) *Graph {
	return &Graph{Kind: kind, Title: title, Unit: unit, effect: 1, frameTable: newFrameTable(),
		tree: &cct.Tree[int32]{Limit: maxFlameNodes}, nodes: make([]flameNode, 1), calls: make(map[flameCall]float64)}
}

// Titles of the kinds that have no events.
const (
	KindCPU   = "cpu"
	KindCalls = "calls"
)

// cutCalls keeps the n places with most calls.
func (f *Graph) cutCalls(n int) {
	if len(f.calls) <= n {
		return
	}
	for _, of := range slices.SortedFunc(maps.Keys(f.calls), func(a, b flameCall) int {
		return cmp.Or(cmp.Compare(f.calls[b], f.calls[a]), a.compare(b))
	})[n:] {
		delete(f.calls, of)
	}
}

// child finds or makes a node. If there is no room, it is the parent.
func (f *Graph) child(parent cct.NodeID, frame int32) cct.NodeID {
	at := f.tree.AddBelow(parent, frame, 0, 0)
	if int(at) == len(f.nodes) {
		if at := len(f.nodes); at == cap(f.nodes) { // by more than append would
			f.nodes = slices.Grow(f.nodes, at/2+1)
		}
		f.nodes = append(f.nodes, flameNode{})
	}
	return at
}

// Services are the processes, the busiest first.
func (f *Graph) Services() []Process {
	totals := f.totals(0)
	var all []Process
	for at, n := range f.tree.Nodes() {
		if n.Depth == 1 {
			p, known := f.processes[n.Key]
			if !known {
				p = Process{Comm: f.frames[n.Key].name, Service: f.frames[n.Key].name}
			}
			p.Value = totals[at]
			all = append(all, p)
		}
	}
	slices.SortStableFunc(all, func(a, b Process) int {
		return cmp.Or(cmp.Compare(b.Value, a.Value), cmp.Compare(a.PID, b.PID))
	})
	return all
}

// Labels are the values by service and by what events are labelled with: a class, a lock, or a
// cause. It is empty if they have no label.
func (f *Graph) Labels() map[string]map[string]float64 {
	sums := map[string]map[string]float64{}
	service := make([]string, len(f.nodes))
	for at, n := range f.tree.Nodes() {
		switch n.Depth {
		case 0:
			continue
		case 1:
			p, known := f.processes[n.Key]
			if !known {
				p.Service = f.frames[n.Key].name
			}
			service[at] = p.Service
		default:
			service[at] = service[n.Parent]
		}
		value := f.nodes[at].value[0]
		if f.frames[n.Key].kind != kindClass || value == 0 {
			continue
		}
		if sums[service[at]] == nil {
			sums[service[at]] = map[string]float64{}
		}
		sums[service[at]][f.frames[n.Key].name] += value
	}
	return sums
}

// Total is the sum of all values.
func (f *Graph) Total() float64 { return f.totals(0)[0] }

// totals are the values of all nodes with their descendants, of one column.
func (f *Graph) totals(column int) []float64 {
	totals := make([]float64, len(f.nodes))
	for at := range f.nodes {
		totals[at] = f.nodes[at].value[column]
	}
	f.tree.AddUp(totals)
	return totals
}

// Merge adds the values of another recording of the same kind.
func (f *Graph) Merge(o *Graph) {
	f.addAbout(o)
	f.take(o, 0, func(int32) bool { return true })
	f.addOwned(o, "", 0)
}

// addAbout adds what another window has of all processes together.
func (f *Graph) addAbout(o *Graph) {
	if f.Start.IsZero() || !o.Start.IsZero() && o.Start.Before(f.Start) {
		f.Start = o.Start
	}
	f.Duration += o.Duration
	f.effect = effectOf(f, o)
	for _, note := range o.Notes {
		if len(f.Notes) < stored.MaxComments && !slices.Contains(f.Notes, note) {
			f.Notes = append(f.Notes, note)
		}
	}
}

// effectOf is the effect of two windows together: the larger one, or 0 if parts of one of them have
// no intervals.
func effectOf(a, b *Graph) float64 {
	if a.effect == 0 || b.effect == 0 {
		return 0
	}
	return max(a.effect, b.effect)
}

// addOwned adds what another window has of single processes, except for values.
func (f *Graph) addOwned(o *Graph, service string, pid int64) {
	for _, l := range o.lanes {
		if (service == "" || laneService(&l) == service) && (pid == 0 || l.PID == pid) {
			f.lanes = append(f.lanes, l)
		}
	}
	f.slow = f.slow.merged(o.slow.filter(func(o flameOwner) bool {
		return (service == "" || o.service == service) && (pid == 0 || o.pid == pid)
	}))
}

// ForService returns the part of a Graph for one service, and of one process of it if pid is not 0. An empty
// service is all.
func (f *Graph) ForService(service string, pid int64) *Graph {
	out := newFlame(f.Kind, f.Title, f.Unit)
	out.addAbout(f)
	out.take(f, 0, f.keeper(service, pid))
	out.addOwned(f, service, pid)
	return out
}

// Against returns a Graph with the values of base as its baseline. Both stay as they are.
func (f *Graph) Against(base *Graph) *Graph {
	out := newFlame(f.Kind, f.Title, f.Unit)
	out.Start, out.Duration, out.Notes, out.effect = f.Start, f.Duration, f.Notes, effectOf(f, base)
	out.base = &flameBase{base.Start, base.Duration}
	all := func(int32) bool { return true }
	out.takeRenamed(f, 0, all)
	out.takeRenamed(base, 1, all)
	out.bars = nil
	return out
}

// take adds the values of the processes of another Graph to a column.
func (f *Graph) take(o *Graph, column int, keep func(process int32) bool) {
	f.takeAs(o, column, keep, keepNames)
}

// takeRenamed is take where processes have no numbers: those of two runs are to meet.
func (f *Graph) takeRenamed(o *Graph, column int, keep func(process int32) bool) {
	f.takeAs(o, column, keep, func(p Process, frame flameFrame) (Process, flameFrame) {
		p.PID = 0
		frame.name = cmp.Or(p.Comm, frame.name)
		frame.file = p.Service
		return p, frame
	})
}

func (f *Graph) takeAs(
	o *Graph, column int, keep func(process int32) bool, rename func(Process, flameFrame) (Process, flameFrame),
) {
	frame := f.taking(&o.frameTable, rename)
	place, out := make([]cct.NodeID, len(o.nodes)), make([]bool, len(o.nodes))
	for at, n := range o.tree.Nodes() {
		if at == cct.Root {
			continue
		}
		if out[at] = out[n.Parent] || n.Depth == 1 && !keep(n.Key); !out[at] {
			place[at] = f.child(place[n.Parent], frame(n.Key))
			f.nodes[place[at]].merge(&o.nodes[at], column)
		}
	}
	for of, n := range o.calls {
		if column == 0 && keep(of.process) {
			f.calls[flameCall{frame(of.process), frame(of.caller), frame(of.callee), of.site}] += n
		}
	}
	f.cutCalls(maxFlameCalls)
	f.bars = append(f.bars, barsOf(o.bars, keep, frame)...)
	f.bars = f.bars[max(0, len(f.bars)-stored.MaxWindows):]
}

// barsOf are bars of the processes that are kept, whose frames get other places. They have no
// cells.
func barsOf(bars []flameBar, keep func(process int32) bool, frame func(int32) int32) (list []flameBar) {
	for _, bar := range bars {
		to := flameBar{start: bar.start, duration: bar.duration, of: make(map[int32]*[classes]float64)}
		for process, sums := range bar.of {
			if keep(process) {
				to.of[frame(process)] = sums
			}
		}
		list = append(list, to)
	}
	return list
}

// merge adds what another node has in its first column.
func (n *flameNode) merge(o *flameNode, column int) {
	n.value[column] += o.value[0]
	n.count[column] += o.count[0]
	if column > 0 && n.votes > 0 {
		return
	}
	n.approx += o.approx
	n.inner += o.inner
	n.vote(o.line, o.votes)
	for i := range n.tiers {
		n.tiers[i] += o.tiers[i]
	}
}

// vote adds votes for a line.
func (n *flameNode) vote(line int32, votes float64) {
	switch {
	case n.line == line:
		n.votes += votes
	case votes > n.votes:
		n.line, n.votes = line, votes-n.votes
	default:
		n.votes -= votes
	}
}

// String is for tests and logs.
func (f *Graph) String() string {
	return fmt.Sprintf("%s: %d nodes, %d calls, %d windows", f.Kind, len(f.nodes)-1, len(f.calls), len(f.bars))
}

// Empty returns one without values.
func Empty(kind, title string, start time.Time, length time.Duration) *Graph {
	f := newFlame(kind, title, stored.UnitCount)
	f.Start, f.Duration = start, length
	return f
}
