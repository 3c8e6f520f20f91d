package fold

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

// MaxEdges bounds the edges that a window holds of one process and engine, each about 100 bytes.
// Calls beyond it count as discarded.
const MaxEdges = 1 << 17

// A RawGraph is a call graph of code versions: a caller is a return address, a callee an entry
// point. It is named when its window closes.
type RawGraph = cct.Graph[guest.RawFrame, struct{}]

// A CallSet is the sampled calls of one process in a window.
type CallSet struct {
	Named map[string]*profile.Graph // graphs of engines that name calls, by engine
	Raw   map[string]*RawGraph      // graphs of the other engines, by engine
	// Counters is the state of the VM's counters at the beginning of the window, for an engine that
	// estimates calls.
	Counters any
}

// Add adds a named call that stands for weight calls. It returns false if there is no room for a
// new edge.
func (s *CallSet) Add(engine string, e profile.Edge, weight float64) bool {
	if s.Named == nil {
		s.Named = map[string]*profile.Graph{}
	}
	g := s.Named[engine]
	if g == nil {
		g = &profile.Graph{Limit: MaxEdges}
		s.Named[engine] = g
	}
	return g.Add(e, weight)
}

// AddRaw adds a call between two code versions. It returns false if there is no room for a new
// edge.
func (s *CallSet) AddRaw(engine string, caller, callee guest.RawFrame) bool {
	if s.Raw == nil {
		s.Raw = map[string]*RawGraph{}
	}
	g := s.Raw[engine]
	if g == nil {
		g = &RawGraph{Limit: MaxEdges}
		s.Raw[engine] = g
	}
	return g.Add(cct.Edge[guest.RawFrame, struct{}]{Caller: caller, Callee: callee}, 1)
}

// Frames calls f for every frame in the raw graphs.
func (s *CallSet) Frames(f func(guest.RawFrame)) {
	for _, g := range s.Raw {
		for e := range g.Edges() {
			f(e.Caller)
			f(e.Callee)
		}
	}
}

// Profile names the raw graphs and returns all graphs, by engine.
func (s *CallSet) Profile(names guest.Names, rates map[string]profile.Rate) []*profile.Calls {
	var out []*profile.Calls
	for engine, g := range s.Named {
		out = append(out, &profile.Calls{Engine: engine, Rate: rates[engine], Graph: g})
	}
	for engine, raw := range s.Raw {
		g := &profile.Graph{Limit: MaxEdges}
		for e, n := range raw.Edges() {
			g.Add(nameEdge(names, e.Caller, e.Callee), n)
		}
		out = append(out, &profile.Calls{Engine: engine, Rate: rates[engine], Graph: g})
	}
	slices.SortFunc(out, func(a, b *profile.Calls) int { return cmp.Compare(a.Engine, b.Engine) })
	return out
}

// nameEdge names a call: from the innermost method at its return address to the method of the
// entered code.
func nameEdge(names guest.Names, caller, callee guest.RawFrame) profile.Edge {
	from, to := names.Lookup(caller), names.Lookup(callee)
	e := profile.Edge{Caller: guest.Marker("[unknown]"), Callee: guest.Marker("[unknown]"),
		Site: profile.Site{Offset: -1}}
	if n := len(to.Symbols); n > 0 {
		e.Callee = guest.MethodOf(to.Symbols[n-1])
	}
	for i, s := range from.Symbols {
		if !s.Value().Approximate { // [inlined in M] is not a method
			e.Caller, e.Site = guest.MethodOf(s), SiteOf(from, i)
			break
		}
	}
	return e
}

// SiteOf returns the place of a name's i-th symbol in its method.
func SiteOf(n guest.Name, i int) profile.Site {
	line, bci := n.Place(i)
	return profile.Site{Line: line, Offset: bci}
}

// CallSite returns the call site of an observed call; classEpoch is how many times the VM had
// unloaded classes.
func CallSite(f bpf.Frame, classEpoch uint32) guest.RawFrame {
	r := guest.RawFrame{Frame: f, Kind: guest.RawReturn}
	if f.Kind() == bpf.FrameInterpreted {
		r.Epoch = classEpoch
	}
	return r
}

// A TopEdge is the two innermost physical frames of a sampled stack whose innermost frame is
// managed code: the place of the thread, and the place from where that code was called.
type TopEdge struct {
	At, From guest.RawFrame // from is zero if at is the outermost frame
}

// maxTopEdges bounds the edges that are counted of one process.
const maxTopEdges = 1 << 15

// TopEdges counts samples of one process by their TopEdge.
type TopEdges struct {
	Edges map[TopEdge]float64
	// Below are samples of calls further down in the stacks of trees, whose callees were waiting
	// for others. There are at most maxTopEdges.
	Below map[TopEdge]uint64
	Left  float64       // samples of edges beyond maxTopEdges
	All   float64       // samples, whatever code was running
	Span  time.Duration // the time that they cover; fades as they do
}

// topOf returns the TopEdge of a stack, innermost frame first. A tick in the kernel counts for the
// managed code that it interrupted. It returns false if something else was running: a stub, the VM.
func topOf(stack []guest.RawFrame) (e TopEdge, ok bool) {
	for len(stack) > 0 && stack[0].Kind == guest.RawKernel {
		stack = stack[1:]
	}
	if len(stack) == 0 || stack[0].Kind != guest.RawExact || !guestCode(stack[0].Frame) {
		return e, false
	}
	e.At = stack[0]
	if len(stack) > 1 {
		e.From = stack[1]
	}
	e.At.End, e.From.End = 0, 0
	return e, true
}

func guestCode(f bpf.Frame) bool {
	return f.Kind() == bpf.FrameJIT || f.Kind() == bpf.FrameInterpreted
}

// Add counts samples with this stack.
func (t *TopEdges) Add(stack []guest.RawFrame, samples float64) {
	t.All += samples
	e, ok := topOf(stack)
	if !ok {
		return
	}
	if t.Edges == nil {
		t.Edges = map[TopEdge]float64{}
	}
	if _, known := t.Edges[e]; !known && len(t.Edges) >= maxTopEdges {
		t.Left += samples
		return
	}
	t.Edges[e] += samples
}

// Clone returns a copy.
func (t *TopEdges) Clone() TopEdges { return TopEdges{maps.Clone(t.Edges), nil, t.Left, t.All, t.Span} }

// AddTree counts all samples of a tree.
func (t *TopEdges) AddTree(tree *Tree) {
	var stack []guest.RawFrame
	totals := tree.Totals()
	for id, n := range tree.Nodes() {
		if id != cct.Root && n.Parent != cct.Root {
			t.addBelow(n.Key, tree.Node(n.Parent).Key, totals[id])
		}
		if n.Self == 0 || id == cct.Root {
			continue
		}
		stack = stack[:0]
		for at := id; at != cct.Root; at = tree.Node(at).Parent {
			k := tree.Node(at).Key
			stack = append(stack, k)
			if k.Kind != guest.RawKernel && len(stack) > 1 && stack[len(stack)-2].Kind != guest.RawKernel {
				break // two frames that are not the kernel's
			}
		}
		t.Add(stack, float64(n.Self))
	}
}

// addBelow counts samples below a call of one frame by another, if both are managed code.
func (t *TopEdges) addBelow(at, from guest.RawFrame, samples uint64) {
	if at.Kind != guest.RawReturn || from.Kind != guest.RawReturn || !guestCode(at.Frame) || !guestCode(from.Frame) {
		return
	}
	if t.Below == nil {
		t.Below = map[TopEdge]uint64{}
	}
	at.End, from.End = 0, 0
	e := TopEdge{at, from}
	if n, known := t.Below[e]; known || len(t.Below) < maxTopEdges {
		t.Below[e] = n + samples
	}
}

// Fade reduces all counts by a fraction, and drops those close to zero.
func (t *TopEdges) Fade(by float64) {
	const least = 0.1 // samples
	t.All *= 1 - by
	t.Left *= 1 - by
	t.Span = time.Duration(float64(t.Span) * (1 - by))
	for e := range t.Edges {
		if t.Edges[e] *= 1 - by; t.Edges[e] < least {
			delete(t.Edges, e)
		}
	}
}

// A TopCode is a compiled version that was running in samples.
type TopCode struct {
	Frame   bpf.Frame // somewhere in it
	samples float64
}

// Hottest returns the n compiled versions with most samples, the hottest first.
func (t *TopEdges) Hottest(n int) []TopCode {
	byID := map[uint32]TopCode{}
	for e, samples := range t.Edges {
		if e.At.Frame.Kind() == bpf.FrameJIT {
			c := byID[e.At.Frame.CompileID()]
			c.Frame, c.samples = max(c.Frame, e.At.Frame), c.samples+samples
			byID[e.At.Frame.CompileID()] = c
		}
	}
	all := make([]TopCode, 0, len(byID))
	for _, c := range byID {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b TopCode) int {
		return cmp.Or(cmp.Compare(b.samples, a.samples), cmp.Compare(a.Frame, b.Frame))
	})
	return all[:min(n, len(all))]
}

// HotAddresses counts samples of one process by their address. Samples outside of its mapped code
// are counted in all only.
type HotAddresses struct {
	Samples map[uint64]float64
	All     float64
}

// maxHotAddresses bounds the addresses that are counted of one process.
const maxHotAddresses = 1 << 14

// Add counts a sample with this stack.
func (h *HotAddresses) Add(stack []guest.RawFrame, c *guest.JITCode) {
	if c == nil {
		return
	}
	h.All++
	for len(stack) > 0 && stack[0].Kind == guest.RawKernel {
		stack = stack[1:]
	}
	if len(stack) == 0 || stack[0].Kind != guest.RawExact || !c.Holds(stack[0].Frame) {
		return
	}
	if h.Samples == nil {
		h.Samples = map[uint64]float64{}
	}
	pc := stack[0].Frame.PC()
	if _, known := h.Samples[pc]; known || len(h.Samples) < maxHotAddresses {
		h.Samples[pc]++
	}
}

// Fade reduces all counts by a fraction, and drops those close to zero.
func (h *HotAddresses) Fade(by float64) {
	const least = 0.1 // samples
	h.All *= 1 - by
	for pc := range h.Samples {
		if h.Samples[pc] *= 1 - by; h.Samples[pc] < least {
			delete(h.Samples, pc)
		}
	}
}

// A Busy is a recently busy process, and where its samples were.
type Busy struct {
	*Process
	Top     TopEdges
	samples float64
}

// Busiest returns the n processes with VMs that were busiest recently, and fades the counts of all.
// It is meant to be called every interval.
func (s *State) Busiest(n int, fade float64, interval time.Duration) (all []Busy) {
	now := proc.Monotonic()
	passed := interval
	if s.faded > 0 {
		passed = now - s.faded
	}
	s.faded = now
	for _, p := range s.Table {
		if len(p.Top.Edges) > 0 {
			p.Top.Span += passed
		}
	}
	for _, p := range s.Table {
		if len(p.Top.Edges) > 0 && !p.Exited.Load() && p.HasCalls() {
			all = append(all, Busy{Process: p, samples: p.Top.All})
		}
	}
	slices.SortFunc(all, func(a, b Busy) int {
		return cmp.Or(cmp.Compare(b.samples, a.samples), cmp.Compare(a.PID, b.PID))
	})
	all = all[:min(n, len(all))]
	for i := range all {
		all[i].Top = all[i].Process.Top.Clone()
	}
	for _, p := range s.Table {
		p.Top.Fade(fade)
	}
	return all
}

// A BusyCode is a process whose code is named by a map, and where its recent samples were.
type BusyCode struct {
	*Process
	Samples map[uint64]float64 // by address
	all     float64
}

// BusiestCode returns the n processes that were busiest recently, among those with mapped code for
// which is returns true. It fades the counts of all.
func (s *State) BusiestCode(n int, fade float64, is func(*Process) bool) (busy []BusyCode) {
	for _, p := range s.Table {
		if len(p.Hot.Samples) > 0 && !p.Exited.Load() && p.Attachment.Load() == 0 && is(p) {
			busy = append(busy, BusyCode{Process: p, all: p.Hot.All})
		}
	}
	slices.SortFunc(busy, func(a, b BusyCode) int {
		return cmp.Or(cmp.Compare(b.all, a.all),
			cmp.Compare(a.PID, b.PID))
	})
	busy = busy[:min(n, len(busy))]
	for i := range busy {
		busy[i].Samples = maps.Clone(busy[i].Process.Hot.Samples)
	}
	for _, p := range s.Table {
		p.Hot.Fade(fade)
	}
	return busy
}
