package fold

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/target"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
)

// Bounds on what a window holds of the events of one kind in one process. What finds no room is counted in its deepest caller, or in
// a row without labels.
const (
	maxEventContexts = 1 << 17 // each about 50 bytes
	maxEventSlices   = 1 << 16 // of a plan that is observed part of the time: three days of them
)

// MaxEventRows bounds Events.Rows, each about 300 bytes.
const MaxEventRows = 1 << 16

// missingWaits is a note on waits that were not observed all the time: no estimate has waits that do not fit into a slice.
const missingWaits = "while waits are not observed all the time, those longer than a slice of it, 0.1 to 1 s, are not seen: the sum is too small if there are any"

// otherValue stands for values that found no room of their own.
const otherValue = "(other)"

// An EventSet is what a window holds of the events of one process.
type EventSet [profile.EventKinds]*Events

// Events are events of one kind, with frames that are not named yet.
type Events struct {
	Tree     Tree
	Rows     map[EventKey]*EventSums
	threads  map[uint32]string       // names of those in Rows
	sums     map[*Coverage]*mainSums // nil: of what is observed all the time
	overflow uint64                  // events that lost their labels
	unclear  EventSums               // waits that count as waits for work, though nobody knows what for
}

// mainSums are of main values of events that were seen by one plan, without those that stand apart.
type mainSums struct {
	rates    map[uint64]float64 // in a second, by slice
	events   uint64
	variance float64 // of their sum, if one of so many events is drawn
}

// An EventKey is what distinguishes rows.
type EventKey struct {
	Context cct.NodeID
	tid     uint32
	profile.EventLabels
	cover *Coverage // when the event's plan was observed; nil if that was all the time
}

// An Event is one observation as it goes into windows.
type Event struct {
	Kind   profile.EventKind
	TID    uint32
	Thread string
	Stack  []target.RawFrame // innermost first
	Labels profile.EventLabels
	Sums   EventSums
	Every  uint32 // one of so many was drawn
	Nth    int    // of those that one execution makes: 0 is the first
	Part   ObservedPart
	Delay  time.Duration // of a wait, for which it stands with its like
	// Unclear: a wait of java.util.concurrent of which it is not known what for. It may have been for a lock.
	Unclear bool
}

// Of returns the events of one kind, to which more may be added.
func (s *EventSet) Of(kind profile.EventKind) *Events {
	if s[kind] == nil {
		s[kind] = &Events{
			Tree: Tree{Limit: maxEventContexts}, Rows: map[EventKey]*EventSums{}, threads: map[uint32]string{},
			sums: map[*Coverage]*mainSums{},
		}
	}
	return s[kind]
}

// Add adds one event. It reports whether there may be frames that are new to the window.
func (s *EventSet) Add(e *Event) (fresh bool) {
	r := s.Of(e.Kind)
	n := r.Tree.Len()
	weight := uint64(1)
	if e.Nth > 0 {
		weight = 0
	}
	key := EventKey{r.Tree.Add(e.Stack, weight), e.TID, e.Labels, e.Part.Cover}
	r.observe(e)
	if e.Unclear {
		r.unclear.Add(&e.Sums)
	}
	sums := r.Rows[key]
	if sums == nil && len(r.Rows) >= MaxEventRows {
		r.overflow++
		key = EventKey{Context: cct.Root, EventLabels: profile.EventLabels{Probe: e.Labels.Probe}, cover: e.Part.Cover}
		if e.Labels.Value != "" {
			key.Value = otherValue
		}
		sums = r.Rows[key]
	}
	if sums == nil {
		sums = &EventSums{}
		r.Rows[key] = sums
	}
	if r.threads[e.TID] == "" && key.tid == e.TID {
		r.threads[e.TID] = e.Thread
	}
	sums.Add(&e.Sums)
	return r.Tree.Len() != n
}

// observe notes an event in the sums of its plan.
func (r *Events) observe(e *Event) {
	cover := e.Part.Cover
	s := r.sums[cover]
	if s == nil {
		s = &mainSums{rates: map[uint64]float64{}}
		r.sums[cover] = s
	}
	if e.Kind.Apart(&e.Labels) {
		return
	}
	value := e.Sums.Values[e.Kind.Main()]
	s.events += e.Sums.Events
	// An event that is drawn with the chance p adds (1-p) value² to the variance, estimated (Horvitz and Thompson, 1952).
	// Of n equal ones that are drawn together it is (1-p) (n value)²: the last of them adds n² - (n-1)².
	missed := 1 - 1/float64(max(e.Every, 1))
	if e.Kind == profile.Cycles {
		missed = 1 // counters run over at any process's cost
	}
	s.variance += value * value * missed * float64(2*e.Nth+1)
	if _, known := s.rates[e.Part.slice]; e.Part.slice != 0 && (known || len(s.rates) < maxEventSlices) {
		s.rates[e.Part.slice] += e.Part.rate(value)
	}
}

// Frames calls f for every frame of the contexts.
func (s *EventSet) Frames(f func(target.RawFrame)) {
	for _, r := range s {
		if r == nil {
			continue
		}
		for id, n := range r.Tree.Nodes() {
			if id != cct.Root {
				f(n.Key)
			}
		}
	}
}

// Profile names the events and returns them by kind. The agent noticed their process at that time of CLOCK_MONOTONIC.
func (s *EventSet) Profile(names target.Names, noticed time.Duration, covered *CoveredParts) (all []*profile.Events) {
	for kind, r := range s {
		if r != nil {
			all = append(all, r.profile(profile.EventKind(kind), names, noticed, covered))
		}
	}
	return all
}

func (r *Events) profile(kind profile.EventKind, names target.Names, noticed time.Duration, covered *CoveredParts) *profile.Events {
	e := &profile.Events{Kind: kind, Tree: &cct.Tree[symbolize.Symbol]{Limit: maxEventContexts}}
	merged := map[EventKey]*EventSums{} // contexts that have the same names are one
	var stack []symbolize.Symbol
	for _, key := range slices.SortedFunc(maps.Keys(r.Rows), compareEvents) {
		sums := *r.Rows[key]
		if key.What != profile.ExactAllocations {
			sums = sums.times(covered.factor(key.cover))
		}
		stack = stack[:0]
		for at := key.Context; at != cct.Root; {
			n := r.Tree.Node(at)
			stack = append(stack, names.Of(n.Key).Symbols...)
			at = n.Parent
		}
		named := key
		named.cover = nil
		named.Context = e.Tree.Add(stack, sums.Events)
		if merged[named] == nil {
			merged[named] = &EventSums{}
		}
		merged[named].Add(&sums)
	}
	for _, key := range slices.SortedFunc(maps.Keys(merged), compareEvents) {
		sums := merged[key]
		e.Rows = append(e.Rows, profile.EventRow{
			Context: key.Context, TID: int(key.tid), Thread: r.threads[key.tid], EventLabels: key.EventLabels,
			Events: sums.Events, Values: sums.Values,
		})
	}
	if r.overflow > 0 {
		e.Basis = append(e.Basis, overflowed(r.overflow))
	}
	if r.unclear.Events > 0 {
		e.Basis = append(e.Basis, unclearWaits(&r.unclear))
	}
	var partly []string
	for c := range r.sums {
		if note, ok := covered.note(c); ok {
			partly = append(partly, note)
		}
	}
	slices.Sort(partly)
	if e.Basis = append(e.Basis, partly...); len(partly) > 0 && kind == profile.Locks {
		e.Basis = append(e.Basis, missingWaits)
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
	threads := map[int]*EventSums{}
	for i := range e.Rows {
		row := &e.Rows[i]
		if e.Kind.Apart(&row.EventLabels) {
			continue
		}
		if threads[row.TID] == nil {
			threads[row.TID] = &EventSums{}
		}
		threads[row.TID].Add(&EventSums{Events: row.Events, Values: row.Values})
	}
	for _, t := range threads {
		mean := t.Values[e.Kind.Main()] / float64(max(t.Events, 1))
		variance += mean * mean
	}
	return variance
}

func compareEvents(a, b EventKey) int {
	return cmp.Or(
		cmp.Compare(a.Context, b.Context), cmp.Compare(a.tid, b.tid), cmp.Compare(a.Class, b.Class),
		cmp.Compare(a.Place, b.Place), cmp.Compare(a.What, b.What), cmp.Compare(a.Collector, b.Collector),
		cmp.Compare(a.Field, b.Field),
		cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Probe, b.Probe), cmp.Compare(a.Value, b.Value),
	)
}

// EventSums are what a row of events adds up to.
type EventSums struct {
	Events uint64                          // observed
	Values [profile.MaxEventValues]float64 // as EventKind.Values says
}

// Add adds other sums.
func (s *EventSums) Add(o *EventSums) {
	s.Events += o.Events
	for i, v := range o.Values {
		s.Values[i] += v
	}
}

// times multiplies the values.
func (s *EventSums) times(factor float64) EventSums {
	out := *s
	for i := range out.Values {
		out.Values[i] *= factor
	}
	return out
}

// AllocationSums are the sums of an observed allocation of an object of size bytes that was drawn from bytes of objects, each as likely
// as it is large, and recorded for every of its kind. So it stands for as many objects of its size as make those bytes.
//
// A thread of HotSpot allocates in a buffer of its own and is not seen before it meets the buffer's end, with an object that
// does not fit into what is left. If that is little the thread gets a new buffer, otherwise the object is allocated outside
// and the buffer is kept (MemAllocator::allocate_inside_tlab_slow in src/hotspot/share/gc/shared/memAllocator.cpp). The kernel
// side records the first object at each end, whichever becomes of it. To let only new buffers count, as is often done,
// misses objects that are larger than what is given up of a buffer, as they rarely make for a new one; and to let every new
// buffer count those that come first after a collection, which are mostly small.
func AllocationSums(size, bytes uint64, every uint32) EventSums {
	s := EventSums{Events: 1}
	if size == 0 {
		return s
	}
	n := float64(every)
	s.Values[0], s.Values[1] = n*float64(bytes)/float64(size), n*float64(bytes)
	return s
}

func overflowed(n uint64) string {
	return fmt.Sprintf("%d events have no labels, because the table of labels was full", n)
}

// unclearWaits says that waits may be counted as what they are not.
func unclearWaits(sums *EventSums) string {
	all := time.Duration(sums.Values[profile.Locks.Main()])
	return fmt.Sprintf("%d waits of java.util.concurrent, %v together, count as waits for work, because the blocker of their threads is unknown: "+
		"some of them may have waited for locks", sums.Events, all.Round(max(all/100, time.Microsecond)))
}
