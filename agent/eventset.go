package agent

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/target"
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

// otherValue stands for values that found no room of their own.
const otherValue = "(other)"

// An eventSet is what a window holds of the events of one process.
type eventSet [profile.EventKinds]*rawEvents

// rawEvents are events of one kind, with frames that are not named yet.
type rawEvents struct {
	tree     fold.Tree
	rows     map[eventKey]*eventSums
	threads  map[uint32]string       // names of those in rows
	sums     map[*coverage]*mainSums // nil: of what is observed all the time
	overflow uint64                  // events that lost their labels
	unclear  eventSums               // waits that count as waits for work, though nobody knows what for
}

// mainSums are of main values of events that were seen by one plan, without those that stand apart.
type mainSums struct {
	rates    map[uint64]float64 // in a second, by slice
	events   uint64
	variance float64 // of their sum, if one of so many events is drawn
}

type eventKey struct {
	context cct.NodeID
	tid     uint32
	profile.EventLabels
	cover *coverage // when the event's plan was observed; nil if that was all the time
}

// An event is one observation as it goes into windows.
type event struct {
	kind   profile.EventKind
	tid    uint32
	thread string
	stack  []target.RawFrame // innermost first
	labels profile.EventLabels
	sums   eventSums
	every  uint32 // one of so many was drawn
	nth    int    // of those that one execution makes: 0 is the first
	part   observedPart
	delay  time.Duration // of a wait, for which it stands with its like
	// unclear: a wait of java.util.concurrent of which it is not known what for. It may have been for a lock.
	unclear bool
}

// of returns the events of one kind.
func (s *eventSet) of(kind profile.EventKind) *rawEvents {
	if s[kind] == nil {
		s[kind] = &rawEvents{
			tree: fold.Tree{Limit: maxEventContexts}, rows: map[eventKey]*eventSums{}, threads: map[uint32]string{},
			sums: map[*coverage]*mainSums{},
		}
	}
	return s[kind]
}

// add folds one event. It tells whether there may be frames that are new to the window.
func (s *eventSet) add(e *event) (fresh bool) {
	r := s.of(e.kind)
	n := r.tree.Len()
	weight := uint64(1)
	if e.nth > 0 {
		weight = 0
	}
	key := eventKey{r.tree.Add(e.stack, weight), e.tid, e.labels, e.part.cover}
	r.observe(e)
	if e.unclear {
		r.unclear.add(&e.sums)
	}
	sums := r.rows[key]
	if sums == nil && len(r.rows) >= maxEventRows {
		r.overflow++
		key = eventKey{context: cct.Root, EventLabels: profile.EventLabels{Probe: e.labels.Probe}, cover: e.part.cover}
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

// observe notes an event in the sums of its plan.
func (r *rawEvents) observe(e *event) {
	cover := e.part.cover
	s := r.sums[cover]
	if s == nil {
		s = &mainSums{rates: map[uint64]float64{}}
		r.sums[cover] = s
	}
	if e.kind.Apart(&e.labels) {
		return
	}
	value := e.sums.values[e.kind.Main()]
	s.events += e.sums.events
	// An event that is drawn with the chance p adds (1-p) value² to the variance, estimated (Horvitz and Thompson, 1952).
	// Of n equal ones that are drawn together it is (1-p) (n value)²: the last of them adds n² - (n-1)².
	missed := 1 - 1/float64(max(e.every, 1))
	if e.kind == profile.Cycles {
		missed = 1 // counters run over at any process's cost
	}
	s.variance += value * value * missed * float64(2*e.nth+1)
	if _, known := s.rates[e.part.slice]; e.part.slice != 0 && (known || len(s.rates) < maxEventSlices) {
		s.rates[e.part.slice] += e.part.rate(value)
	}
}

// frames calls f for every frame of the contexts.
func (s *eventSet) frames(f func(target.RawFrame)) {
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

// profile names the events and returns them by kind. The agent noticed their process at that time of CLOCK_MONOTONIC.
func (s *eventSet) profile(names target.Names, noticed time.Duration, covered *coveredParts) (all []*profile.Events) {
	for kind, r := range s {
		if r != nil {
			all = append(all, r.profile(profile.EventKind(kind), names, noticed, covered))
		}
	}
	return all
}

func (r *rawEvents) profile(kind profile.EventKind, names target.Names, noticed time.Duration, covered *coveredParts) *profile.Events {
	e := &profile.Events{Kind: kind, Tree: &cct.Tree[symbolize.Symbol]{Limit: maxEventContexts}}
	merged := map[eventKey]*eventSums{} // contexts that have the same names are one
	var stack []symbolize.Symbol
	for _, key := range slices.SortedFunc(maps.Keys(r.rows), compareEvents) {
		sums := *r.rows[key]
		if key.What != profile.ExactAllocations {
			sums = sums.times(covered.factor(key.cover))
		}
		stack = stack[:0]
		for at := key.context; at != cct.Root; {
			n := r.tree.Node(at)
			stack = append(stack, names.Of(n.Key).Symbols...)
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
		e.Rows = append(e.Rows, profile.EventRow{
			Context: key.context, TID: int(key.tid), Thread: r.threads[key.tid], EventLabels: key.EventLabels,
			Events: sums.events, Values: sums.values,
		})
	}
	if r.overflow > 0 {
		e.Basis = append(e.Basis, overflowed(r.overflow))
	}
	if r.unclear.events > 0 {
		e.Basis = append(e.Basis, unclearWaits(&r.unclear))
	}
	e.Coverage = covered.cover(r.sums, total(e), ends(e))
	e.Coverage.Missed = covered.missed(r.sums, noticed)
	return e
}

// total is the sum of the main value, without rows that stand apart.
func total(e *profile.Events) (sum float64) {
	for i := range e.Rows {
		if !e.Kind.Apart(&e.Rows[i].EventLabels) {
			sum += e.Rows[i].Values[e.Kind.Main()]
		}
	}
	return sum
}

// ends is the variance of the sum of allocations that comes of buffers which a window's beginning or end cuts: of each thread
// about one, which counts whole or not at all. 0 for other kinds.
func ends(e *profile.Events) (variance float64) {
	if e.Kind != profile.Allocations {
		return 0
	}
	threads := map[int]*eventSums{}
	for i := range e.Rows {
		row := &e.Rows[i]
		if e.Kind.Apart(&row.EventLabels) {
			continue
		}
		if threads[row.TID] == nil {
			threads[row.TID] = &eventSums{}
		}
		threads[row.TID].add(&eventSums{events: row.Events, values: row.Values})
	}
	for _, t := range threads {
		mean := t.values[e.Kind.Main()] / float64(max(t.events, 1))
		variance += mean * mean
	}
	return variance
}

func compareEvents(a, b eventKey) int {
	return cmp.Or(
		cmp.Compare(a.context, b.context), cmp.Compare(a.tid, b.tid), cmp.Compare(a.Class, b.Class),
		cmp.Compare(a.Place, b.Place), cmp.Compare(a.What, b.What), cmp.Compare(a.Collector, b.Collector),
		cmp.Compare(a.Field, b.Field),
		cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Probe, b.Probe), cmp.Compare(a.Value, b.Value),
	)
}
