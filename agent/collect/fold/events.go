package fold

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// Bounds on the events of one kind in one process and window. Events without room are counted in
// their deepest caller that has room, or in a row without labels.
const (
	maxEventContexts = 1 << 17 // each about 50 bytes
	maxEventSlices   = 1 << 16 // for a plan that is observed part of the time: three days of them
)

// MaxEventRows bounds Events.Rows, each about 300 bytes.
const MaxEventRows = 1 << 16

// missingWaits is a note on waits that were not observed all the time: no estimate has waits that
// do not fit into a slice.
const missingWaits = "waits are observed in time slices of 0.1 to 1 s: a wait longer than a slice is not seen, so " +
	"the sum may be too small"

// otherValue stands for values that found no room of their own.
const otherValue = "(other)"

// An EventSet is the events of one process in a window.
type EventSet [profile.EventKinds]*Events

// Events are events of one kind, with frames that are not named yet.
type Events struct {
	Tree     Tree
	Rows     map[EventKey]*EventSums
	threads  map[namedThread]string  // names of those in Rows
	comms    map[uint32][]comm       // by thread id: the kernel's names, which namedThread numbers
	byVM     map[uint64]uint32       // the last of them at an address of the VM's: Allocations
	sums     map[*Coverage]*mainSums // the key nil is for events that are observed all the time
	overflow uint64                  // events that lost their labels
	unclear  EventSums               // waits that count as waits for work, though their reason is unknown
	away     awayTimes               // times of threads that had not come back to a CPU when the window ended
	times    []profile.ThreadTime
	seen     map[uint32]*EventSums // sums of Rows by thread id: ThreadTime.Seen
	causes   map[*EventSums]string // causes of Rows once they are named: OffCPU
	locked   lockTimes
	looks    map[bool]*lookSums // Locks: of waits for monitors, and of others
	order    order              // Allocations
	wakers   wakers             // OffCPU: who ended waits; Locks: who had the lock meanwhile
}

// mainSums are the sums of main values of events from one plan, without those reported separately.
type mainSums struct {
	rates    map[uint64]float64 // per second, by slice
	events   uint64
	sum      float64
	variance float64 // variance of the sum, from drawing one event in several
}

// A namedThread is a thread under one of its names.
type namedThread struct {
	tid uint32
	nth uint8 // index in Events.comms
}

// An EventKey is what distinguishes rows.
type EventKey struct {
	Context cct.NodeID
	namedThread
	profile.EventLabels
	cover   *Coverage // coverage of the event's plan; nil if it was observed all the time
	waker   wakerID
	lengths Lengths // LengthsLooked, LengthsSliced, or 0
}

// An Event is one observation as it is added to windows.
type Event struct {
	Kind   profile.EventKind
	TID    uint32
	Thread string
	Comm   []byte           // the kernel's name of the thread, up to 16 bytes; nil if there is none
	Stack  []guest.RawFrame // innermost first
	Labels profile.EventLabels
	Sums   EventSums
	Every  uint32 // one in this many was drawn; Moment
	Nth    int    // its number among the events of one execution: 0 is the first
	Part   ObservedPart
	Delay  time.Duration // delay of a wait, for which it stands with its like
	// Lock is more about a wait for a lock; nil if it is as long as Delay and nobody was seen to
	// have the lock.
	Lock   *LockWait
	Length Lengths // where the length of a wait for a lock is from
	waker  wakerID
	// VMThread is the address of the VM's structure for the thread: of an allocation.
	VMThread uint64
	// Unclear marks a wait of java.util.concurrent of unknown reason. It may have been for a lock.
	Unclear bool
}

// Moment is Event.Every of what was seen at a moment that was drawn: it stands for the time around
// that, not for a number of events.
const Moment = math.MaxUint32

// ByKind returns the events of one kind, to which more may be added.
func (s *EventSet) ByKind(kind profile.EventKind) *Events {
	if s[kind] == nil {
		s[kind] = &Events{
			Tree: Tree{Limit: maxEventContexts}, Rows: map[EventKey]*EventSums{}, threads: map[namedThread]string{},
			comms: map[uint32][]comm{}, seen: map[uint32]*EventSums{},
			byVM: map[uint64]uint32{},
			sums: map[*Coverage]*mainSums{},
		}
	}
	return s[kind]
}

// Add adds one event. It reports whether it may have frames that are new to the window.
func (s *EventSet) Add(e *Event) (fresh bool) {
	_, fresh = s.add(e)
	return fresh
}

// add is Add, and returns the row that has the event.
func (s *EventSet) add(e *Event) (row *EventSums, fresh bool) {
	r := s.ByKind(e.Kind)
	n := r.Tree.Len()
	weight := uint64(1)
	if e.Nth > 0 {
		weight = 0
	}
	of := r.threadOf(e)
	if e.Length == LengthsSliced {
		weight = 0 // it was counted when it began
	}
	key := EventKey{r.Tree.Add(e.Stack, weight), of, e.Labels, e.Part.Cover, e.waker, e.Length.ofRow()}
	r.observe(e)
	if main := e.Kind.Main(); e.Kind == profile.Allocations && e.Labels.What != profile.ExactAllocations &&
		e.Sums.Known[main] < e.Sums.Values[main] {
		r.order.add(e.TID, site{key.Context, e.Labels.Class}, bufferEnd{e.Sums.Values[0], e.Sums.Values[main]})
	}
	if e.Unclear {
		r.unclear.Add(&e.Sums)
	}
	sums := r.Rows[key]
	if sums == nil && len(r.Rows) >= MaxEventRows {
		r.overflow++
		key = EventKey{Context: cct.Root, EventLabels: profile.EventLabels{Probe: e.Labels.Probe}, cover: e.Part.Cover,
			lengths: key.lengths}
		switch {
		case e.Kind == profile.OffCPU:
			key.Value = e.Labels.Value
		case e.Labels.Value != "":
			key.Value = otherValue
		}
		sums = r.Rows[key]
	}
	if sums == nil {
		sums = &EventSums{}
		r.Rows[key] = sums
	}
	if key.namedThread == of && (e.Thread != "" || r.threads[of] == "") {
		r.threads[of] = e.Thread // the last one: the VM's longer names are read after the first events
	}
	if e.VMThread != 0 {
		r.byVM[e.VMThread] = e.TID
	}
	own := e.Sums
	if e.Length == LengthsSliced {
		own.Events = 0
	}
	sums.Add(&own)
	return sums, r.Tree.Len() != n
}

// threadOf returns the thread of an event, under the name that it has.
func (r *Events) threadOf(e *Event) namedThread {
	name, known := commOf(e.Comm), r.comms[e.TID]
	nth := slices.Index(known, name)
	switch {
	case nth >= 0:
	case len(known) == maxThreadNames:
		nth = maxThreadNames - 1
		known[nth] = name
	default:
		nth = len(known)
		r.comms[e.TID] = append(known, name)
	}
	return namedThread{e.TID, uint8(nth)}
}

// lastName returns the last of a thread's names.
func (r *Events) lastName(tid uint32) string {
	return r.threads[namedThread{tid, uint8(max(len(r.comms[tid])-1, 0))}]
}

// observe adds an event to the sums of its plan.
func (r *Events) observe(e *Event) {
	cover, of := e.Part.Cover, r.sums
	if e.Length != LengthsKnown {
		of = r.looked(e.Labels.What == monitorWait).observe(e, of)
	}
	s := of[cover]
	if s == nil {
		s = &mainSums{rates: map[uint64]float64{}}
		of[cover] = s
	}
	if e.Kind.Apart(&e.Labels) {
		return
	}
	value := e.Sums.Values[e.Kind.Main()]
	s.events += e.Sums.Events
	s.sum += value
	// An event that is drawn with probability p adds (1-p) value² to the variance, estimated
	// (Horvitz and Thompson, 1952). For n equal ones drawn together it is (1-p) (n value)²: the
	// last of them adds n² - (n-1)².
	missed := 1 - 1/float64(max(e.Every, 1))
	if e.Every == Moment {
		missed = 0 // looks say how much the time that they stand for varies
	}
	if e.Kind == profile.Cycles {
		missed = 1 // a counter may overflow in any process
	}
	s.variance += value * value * missed * float64(2*e.Nth+1)
	if _, known := s.rates[e.Part.slice]; e.Part.slice != 0 && (known || len(s.rates) < maxEventSlices) {
		s.rates[e.Part.slice] += e.Part.rate(value)
	}
}

// Frames calls f for every frame of the contexts.
func (s *EventSet) Frames(f func(guest.RawFrame)) {
	for _, r := range s {
		if r == nil {
			continue
		}
		for id, n := range r.Tree.Nodes() {
			if id != cct.Root {
				f(n.Key)
			}
		}
		r.wakers.frames(f)
	}
}

// Profile names the events and returns them by kind. noticed is when the agent noticed the process
// (CLOCK_MONOTONIC). allocated is what the VM counted itself, nil if that is not known; extents are
// of what was observed of it.
func (s *EventSet) Profile(
	names guest.Names, noticed time.Duration, covered *CoveredParts, allocated *Allocated,
) (all []*profile.Events, extents []profile.Extent) {
	for kind, r := range s {
		if r == nil {
			continue
		}
		var d *division
		if profile.EventKind(kind) == profile.Allocations && allocated != nil {
			d = r.divide(allocated, covered)
			extents = append(extents, d.extent)
		}
		all = append(all, r.profile(profile.EventKind(kind), names, noticed, covered, d))
	}
	return all, extents
}

// profile names the events. d divides what the VM counted among them; nil if that is not known.
func (r *Events) profile(
	kind profile.EventKind, names guest.Names, noticed time.Duration, covered *CoveredParts, d *division,
) *profile.Events {
	e := &profile.Events{Kind: kind, Tree: &cct.Tree[symbol.Symbol]{Limit: maxEventContexts},
		Times: slices.Clone(r.times)}
	seen := make(map[*EventSums]EventKey, len(r.seen)) // as they are named
	for _, row := range r.seen {
		seen[row] = EventKey{}
	}
	merged := map[EventKey]*EventSums{} // contexts with the same names are merged
	r.causes = map[*EventSums]string{}
	var waiting namedStack
	leftOut := r.leftOut(covered)
	for _, key := range slices.SortedFunc(maps.Keys(r.Rows), compareEvents) {
		if leftOut(&key) {
			continue
		}
		sums := *r.Rows[key]
		switch factor := covered.factor(kind, key.cover); {
		case key.What == profile.ExactAllocations:
		case d != nil:
			sums = d.scale(&key, &sums, factor)
		default:
			sums = sums.times(factor)
		}
		waiting.name(names, &r.Tree, key.Context)
		stack := waiting.symbols
		named := key
		named.cover, named.lengths = nil, 0
		switch kind {
		case profile.Locks:
			r.wakers.nameHolder(&named)
		case profile.Exceptions:
			stack = withoutConstructors(stack, key.Class)
		case profile.OffCPU:
			stack = nameWait(&named, r.threads[key.namedThread], stack, waiting.enters)
			r.causes[r.Rows[key]] = named.What
			stack = r.wakers.name(&named, stack)
		}
		named.Context = e.Tree.Add(stack, sums.Events)
		if merged[named] == nil {
			merged[named] = &EventSums{}
		}
		merged[named].Add(&sums)
		if _, ok := seen[r.Rows[key]]; ok {
			seen[r.Rows[key]] = named
		}
	}
	number := make(map[EventKey]int, len(seen)) // in Rows, from 1
	for _, key := range slices.SortedFunc(maps.Keys(merged), compareEvents) {
		sums := merged[key]
		e.Rows = append(e.Rows, profile.EventRow{
			Context: key.Context, TID: int(key.tid), Thread: r.threads[key.namedThread], EventLabels: key.EventLabels,
			Events: sums.Events, Values: sums.Values,
		})
		if len(seen) > 0 {
			number[key] = len(e.Rows)
		}
	}
	for i := range e.Times {
		if row := r.seen[uint32(e.Times[i].TID)]; row != nil {
			e.Times[i].Seen = number[seen[row]]
		}
	}
	if d != nil {
		e.Rows = append(e.Rows, d.unsitedRows(e.Tree, r.lastName)...)
	}
	if r.overflow > 0 {
		e.Basis = append(e.Basis, overflowed(r.overflow))
	}
	if r.unclear.Events > 0 {
		e.Basis = append(e.Basis, unclearWaits(&r.unclear))
	}
	for _, note := range [...]string{r.order.note(), r.away.note(), unknownWakers(&r.wakers.unknown)} {
		if note != "" {
			e.Basis = append(e.Basis, note)
		}
	}
	var partly []string
	for c := range r.sums {
		if note, ok := covered.note(c); ok {
			partly = append(partly, note)
		}
	}
	slices.Sort(partly)
	if e.Basis = append(e.Basis, partly...); kind == profile.Locks && r.LacksLong(covered) {
		e.Basis = append(e.Basis, missingWaits)
	}
	e.Coverage = covered.cover(kind, r.sums, r.looks, total(e), ends(e))
	if d != nil {
		e.Coverage.Count(d.Skew)
	} else {
		e.Coverage.Missed = covered.missed(r.sums, noticed)
	}
	return e
}

// total is the sum of the main value, without rows that are reported separately.
func total(e *profile.Events) (sum float64) {
	for i := range e.Rows {
		if !e.Kind.Apart(&e.Rows[i].EventLabels) {
			sum += e.Rows[i].Values[e.Kind.Main()]
		}
	}
	return sum
}

// ends returns the variance of the sum of allocations from buffers that the window's beginning or
// end cuts: about one for each thread, which counts completely or not at all. It is 0 for other
// kinds.
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
		cmp.Compare(a.Context, b.Context), cmp.Compare(a.tid, b.tid), cmp.Compare(a.nth, b.nth),
		cmp.Compare(a.waker, b.waker), cmp.Compare(a.Class, b.Class),
		cmp.Compare(a.Place, b.Place), cmp.Compare(a.What, b.What), cmp.Compare(a.Collector, b.Collector),
		cmp.Compare(a.Field, b.Field), cmp.Compare(a.lengths, b.lengths),
		cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Probe, b.Probe), cmp.Compare(a.Value, b.Value),
	)
}

// EventSums are the sums of a row of events.
type EventSums struct {
	Events uint64                          // observed
	Values [profile.MaxEventValues]float64 // in the order of EventKind.Values
	// Known is the part of Values that was observed as it is: no estimate, and not to be scaled.
	Known [profile.MaxEventValues]float64
}

// Add adds other sums.
func (s *EventSums) Add(o *EventSums) {
	s.Events += o.Events
	for i, v := range o.Values {
		s.Values[i] += v
		s.Known[i] += o.Known[i]
	}
}

// times multiplies the values.
func (s *EventSums) times(factor float64) EventSums {
	out := *s
	for i := range out.Values {
		out.Values[i] = s.Known[i] + factor*(s.Values[i]-s.Known[i])
	}
	return out
}

func overflowed(n uint64) string {
	return fmt.Sprintf("%d events have no labels, because the table of labels was full", n)
}

// withoutConstructors cuts off what creates an exception of a class: its constructors and those of
// its superclasses, down to the native method that writes the stack trace. symbols are innermost
// first.
func withoutConstructors(symbols []symbol.Symbol, class string) []symbol.Symbol {
	end, found := 0, false
	for i, s := range symbols {
		method := s.Function()
		own := method == class+".<init>"
		switch {
		case strings.HasPrefix(method, "java.lang.Throwable.fillInStackTrace"):
		case !strings.HasSuffix(method, ".<init>"), found && !own:
			return symbols[end:]
		}
		end, found = i+1, found || own
	}
	return symbols[end:]
}
