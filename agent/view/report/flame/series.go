package flame

import (
	"maps"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/cct"
)

// leastSeriesNodes is how many contexts a Series has before it looks for those of windows that it
// has forgotten.
const leastSeriesNodes = 1 << 12

// A Series keeps the last windows of one kind of values, such that any of them are added up in a
// few milliseconds: the contexts of all windows are one tree, and a window is a list of values of
// its nodes. What Add does once for each window is not done again for each reader.
//
// It is not safe for concurrent use, but what Sum returns belongs to the caller.
type Series struct {
	frameTable
	most    int
	tree    *cct.Tree[int32] // contexts of all windows, by the places of their frames
	calls   []flameCall      // calls of all windows
	callAt  map[flameCall]int32
	windows []seriesWindow // oldest first
	tidied  int            // how many contexts there were without those of forgotten windows
}

// A seriesWindow is one window: its values, and everything else.
type seriesWindow struct {
	about *Graph // without frames, nodes and calls; its bars have frames of the Series
	self  []selfCell
	code  []codeCell
	calls []callCell
}

// A selfCell is what a node has of its own. Most nodes are only callers, and have none.
type selfCell struct {
	node          cct.NodeID
	approx, inner float32
	value, count  float64
}

// A codeCell is the line and the tiers of a node that has any.
type codeCell struct {
	node  cct.NodeID
	line  int32
	votes float32
	tiers [tiers]float32
}

type callCell struct {
	call int32 // place in Series.calls
	n    float64
}

// NewSeries makes a Series that keeps at most so many windows.
func NewSeries(most int) *Series {
	s := &Series{most: most}
	s.clear()
	return s
}

// clear forgets all contexts.
func (s *Series) clear() {
	s.frameTable = newFrameTable()
	s.tree = &cct.Tree[int32]{Limit: maxFlameNodes}
	s.calls, s.callAt = nil, make(map[flameCall]int32)
}

// Add adds a window, which must not change afterwards, and forgets the oldest one if there are too
// many. Call Cut first to bound it.
func (s *Series) Add(f *Graph) {
	s.windows = append(s.windows, s.window(f))
	if more := len(s.windows) - s.most; more > 0 {
		s.windows = slices.Clone(s.windows[more:]) // a copy, so that the rest can be freed
	}
	if s.tree.Len() > max(leastSeriesNodes, 2*s.tidied) {
		s.tidy()
	}
}

// window is a Graph as a Series keeps it.
func (s *Series) window(f *Graph) seriesWindow {
	frame := s.taking(&f.frameTable, keepNames)
	about := *f
	about.frameTable, about.tree, about.nodes, about.calls = frameTable{}, nil, nil, nil
	about.lanes, about.bars = keptLanes(f.lanes, maxKeptLanes), barsOf(f.bars, func(int32) bool { return true }, frame)
	w := seriesWindow{about: &about}
	place := make([]cct.NodeID, len(f.nodes))
	for at, of := range f.tree.Nodes() {
		if at == cct.Root {
			continue
		}
		n := &f.nodes[at]
		place[at] = s.tree.AddBelow(place[of.Parent], frame(of.Key), 0, 0)
		if n.value[0] != 0 || n.count[0] != 0 {
			w.self = append(w.self, selfCell{place[at], float32(n.approx), float32(n.inner), n.value[0], n.count[0]})
		}
		code := codeCell{node: place[at], line: n.line, votes: float32(n.votes)}
		for i, v := range n.tiers {
			code.tiers[i] = float32(v)
		}
		if code.line != 0 || code.tiers != ([tiers]float32{}) {
			w.code = append(w.code, code)
		}
	}
	for c, n := range f.calls {
		w.calls = append(w.calls, callCell{s.call(flameCall{frame(c.process), frame(c.caller), frame(c.callee),
			c.site}), n})
	}
	w.self, w.code, w.calls = slices.Clone(w.self), slices.Clone(w.code), slices.Clone(w.calls) // without spare room
	return w
}

func (s *Series) call(of flameCall) int32 {
	at, known := s.callAt[of]
	if !known {
		at = int32(len(s.calls))
		s.calls, s.callAt[of] = append(s.calls, of), at
	}
	return at
}

// tidy forgets the contexts that only forgotten windows had: processes end, and code changes.
func (s *Series) tidy() {
	old := *s
	s.clear()
	s.windows = nil
	for i := range old.windows {
		s.windows = append(s.windows, s.window(old.sum(old.windows[i:i+1], "", 0)))
	}
	s.tidied = s.tree.Len()
}

// Start is when the oldest window begins; zero if there is none.
func (s *Series) Start() time.Time {
	if len(s.windows) == 0 {
		return time.Time{}
	}
	return s.windows[0].about.Start
}

// Sum adds up the windows that begin at a time that want has, as far as they are of one service,
// and of one process of it if pid is not 0. An empty service is all. It is nil if there is no such
// window.
func (s *Series) Sum(want func(start time.Time) bool, service string, pid int64) *Graph {
	var list []seriesWindow
	for _, w := range s.windows {
		if want(w.about.Start) {
			list = append(list, w)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return s.sum(list, service, pid)
}

// Each calls yield with each window.
func (s *Series) Each(yield func(f *Graph)) {
	for i := range s.windows {
		yield(s.sum(s.windows[i:i+1], "", 0))
	}
}

func (s *Series) sum(list []seriesWindow, service string, pid int64) *Graph {
	first, keep := list[0].about, s.keeper(service, pid)
	out := &Graph{Kind: first.Kind, Title: first.Title, Unit: first.Unit, effect: 1}
	// Frames never change.
	out.frames, out.processes = s.frames[:len(s.frames):len(s.frames)], maps.Clone(s.processes)
	cells := make([]float64, s.tree.Len()+1) // how many cells are of each context
	for _, w := range list {
		for i := range w.self {
			cells[w.self[i].node]++
		}
		for i := range w.code {
			cells[w.code[i].node]++
		}
	}
	s.tree.AddUp(cells)
	var place []cct.NodeID // Root for what is left out
	out.tree, place = s.tree.Prune(nil, func(at cct.NodeID) bool {
		n := s.tree.Node(at)
		return cells[at] > 0 && (n.Depth > 1 || keep(n.Key))
	})
	out.nodes = make([]flameNode, out.tree.Len()+1)
	calls := make([]float64, len(s.calls))
	for _, w := range list {
		out.addAbout(w.about)
		out.bars = append(out.bars, barsOf(w.about.bars, keep, func(frame int32) int32 { return frame })...)
		out.addOwned(w.about, service, pid)
		for i := range w.self {
			c := &w.self[i]
			if at := place[c.node]; at != cct.Root || c.node == cct.Root {
				n := &out.nodes[at]
				n.value[0] += c.value
				n.count[0] += c.count
				n.approx += float64(c.approx)
				n.inner += float64(c.inner)
			}
		}
		for i := range w.code {
			c := &w.code[i]
			if at := place[c.node]; at != cct.Root {
				n := &out.nodes[at]
				n.vote(c.line, float64(c.votes))
				for i, v := range c.tiers {
					n.tiers[i] += float64(v)
				}
			}
		}
		for _, c := range w.calls {
			calls[c.call] += c.n
		}
	}
	out.calls = make(map[flameCall]float64)
	for at, n := range calls {
		if n > 0 && keep(s.calls[at].process) {
			out.calls[s.calls[at]] = n
		}
	}
	out.cutCalls(maxFlameCalls)
	return out
}
