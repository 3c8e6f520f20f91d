package agent

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
)

// Bounds on what a window holds of the events of one kind in one process: contexts, each about 50 bytes, and rows, each
// about 300. What finds no room is counted in its deepest caller, or in a row without labels.
const (
	maxEventContexts = 1 << 17
	maxEventRows     = 1 << 16
	maxEventSlices   = 1 << 16 // of a plan that is observed part of the time: three days of them
)

// An eventSet is what a window holds of the events of one process.
type eventSet [EventKinds]*rawEvents

// rawEvents are events of one kind, with frames that are not named yet.
type rawEvents struct {
	tree     rawTree
	rows     map[eventKey]*eventSums
	threads  map[uint32]string                // names of those in rows
	rates    map[*coverage]map[uint64]float64 // of the main value, in a second, by the slice in which events were seen
	overflow uint64                           // events that lost their labels
}

type eventKey struct {
	context cct.NodeID
	tid     uint32
	EventLabels
	cover *coverage // when the event's plan was observed; nil if that was all the time
}

// An event is one observation as it goes into windows.
type event struct {
	kind   EventKind
	tid    uint32
	thread string
	stack  []rawFrame // innermost first
	labels EventLabels
	sums   eventSums
	again  bool // of an execution of which there is another event
	part   observedPart
	delay  time.Duration // of a wait, for which it stands with its like
}

// of returns the events of one kind.
func (s *eventSet) of(kind EventKind) *rawEvents {
	if s[kind] == nil {
		s[kind] = &rawEvents{
			tree: rawTree{Limit: maxEventContexts}, rows: map[eventKey]*eventSums{}, threads: map[uint32]string{},
			rates: map[*coverage]map[uint64]float64{},
		}
	}
	return s[kind]
}

// add folds one event. It tells whether there may be frames that are new to the window.
func (s *eventSet) add(e *event) (fresh bool) {
	r := s.of(e.kind)
	n := r.tree.Len()
	weight := uint64(1)
	if e.again {
		weight = 0
	}
	key := eventKey{r.tree.Add(e.stack, weight), e.tid, e.labels, e.part.cover}
	r.observe(e)
	sums := r.rows[key]
	if sums == nil && len(r.rows) >= maxEventRows {
		r.overflow++
		key = eventKey{context: cct.Root, EventLabels: EventLabels{Probe: e.labels.Probe}, cover: e.part.cover}
		if e.labels.Value != "" {
			key.Value = otherValue
		}
		sums = r.rows[key]
	}
	if sums == nil {
		sums = &eventSums{}
		r.rows[key] = sums
	}
	if r.threads[e.tid] == "" && key.tid == e.tid {
		r.threads[e.tid] = e.thread
	}
	sums.add(&e.sums)
	return r.tree.Len() != n
}

// observe notes an event in the rate of its slice.
func (r *rawEvents) observe(e *event) {
	cover := e.part.cover
	if cover == nil {
		return
	}
	rates := r.rates[cover]
	if rates == nil {
		rates = map[uint64]float64{}
		r.rates[cover] = rates
	}
	if _, known := rates[e.part.slice]; e.part.slice != 0 && (known || len(rates) < maxEventSlices) {
		rates[e.part.slice] += e.part.rate(e.sums.values[e.kind.Main()])
	}
}

// frames calls f for every frame of the contexts.
func (s *eventSet) frames(f func(rawFrame)) {
	for _, r := range s {
		if r == nil {
			continue
		}
		for id, n := range r.tree.Nodes() {
			if id != cct.Root {
				f(n.Key)
			}
		}
	}
}

// namedEvents are the events of p in a window that was closed, with what was heard of monitor enters.
func (w *Window) namedEvents(p *process) []*Events {
	s := w.events[p]
	if s == nil {
		return nil
	}
	entered := w.agent.enters.addTo(w, p)
	p.mu.Lock()
	defer p.mu.Unlock()
	all := s.profile(p, w.covered)
	for _, e := range all {
		if e.Kind == Locks && entered != "" {
			e.Basis = append(e.Basis, entered)
		}
	}
	return all
}

// profile names the events and returns them by kind; p.mu is held.
func (s *eventSet) profile(p *process, covered coveredParts) (all []*Events) {
	for kind, r := range s {
		if r != nil {
			all = append(all, r.profile(EventKind(kind), p, covered))
		}
	}
	return all
}

func (r *rawEvents) profile(kind EventKind, p *process, covered coveredParts) *Events {
	e := &Events{Kind: kind, Tree: &cct.Tree[symbolize.Symbol]{Limit: maxEventContexts}}
	merged := map[eventKey]*eventSums{} // contexts that have the same names are one
	var stack []symbolize.Symbol
	for _, key := range slices.SortedFunc(maps.Keys(r.rows), compareEvents) {
		sums := r.rows[key].times(covered.factor(key.cover))
		stack = stack[:0]
		for at := key.context; at != cct.Root; {
			n := r.tree.Node(at)
			stack = append(stack, p.named(n.Key).symbols...)
			at = n.Parent
		}
		named := key
		named.cover = nil
		named.context = e.Tree.Add(stack, sums.events)
		if merged[named] == nil {
			merged[named] = &eventSums{}
		}
		merged[named].add(&sums)
	}
	for _, key := range slices.SortedFunc(maps.Keys(merged), compareEvents) {
		sums := merged[key]
		e.Rows = append(e.Rows, EventRow{
			Context: key.context, TID: int(key.tid), Thread: r.threads[key.tid], EventLabels: key.EventLabels,
			Events: sums.events, Values: sums.values,
		})
	}
	if r.overflow > 0 {
		e.Basis = append(e.Basis, overflowed(r.overflow))
	}
	e.Coverage = covered.of(r.rates)
	return e
}

func compareEvents(a, b eventKey) int {
	return cmp.Or(
		cmp.Compare(a.context, b.context), cmp.Compare(a.tid, b.tid), cmp.Compare(a.Class, b.Class),
		cmp.Compare(a.Place, b.Place), cmp.Compare(a.What, b.What), cmp.Compare(a.Collector, b.Collector),
		cmp.Compare(a.Field, b.Field),
		cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Probe, b.Probe), cmp.Compare(a.Value, b.Value),
	)
}
