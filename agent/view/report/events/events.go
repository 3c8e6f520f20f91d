// Package events makes views of the events in stored profiles: a view for each kind of them, what
// they add up to, what a call takes on average, and who was seen to hold locks.
package events

import (
	"cmp"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"
	"strings"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/cause"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/layout"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/stacks"
)

// A tally is what some events add up to.
type tally struct {
	values [profile.MaxEventValues]float64 // as profile.EventKind.Values says
	events float64
	// variance is that of the main value. The n events of a sample, of about equal weight w, are a
	// Poisson number of them, so that the variance of their sum n w is n w², which is value²/n.
	// Values that were not estimated have none.
	variance float64
	unsited  float64 // the part of the main value that no observed event stands for
	drawn    float64 // OffCPU, Wall: the part of the main value that draws stand for
	// Wall: of which variance is not, as it depends on the rest; nil if there is none
	divided map[dividedTime]drawnTime
}

func (t *tally) add(other tally) {
	for i, v := range other.values {
		t.values[i] += v
	}
	t.events += other.events
	t.variance += other.variance
	t.unsited += other.unsited
	t.drawn += other.drawn
	if t.divided == nil && other.divided != nil {
		t.divided = make(map[dividedTime]drawnTime)
	}
	for key, of := range other.divided {
		sum := t.divided[key]
		t.divided[key] = drawnTime{sum.time + of.time, sum.squares + of.squares}
	}
}

// normal95 is how many standard deviations to either side hold 95 % of a normal distribution.
const normal95 = 1.96

// leastEvents are so many that their number is about normally distributed. Where fewer are to be
// expected, intervals that follow from the number seen are too narrow: of three, 84 of 100 hold the
// truth.
const leastEvents = 10

// shareInterval returns the half-width of the 95 % interval of the share that value i of t has of
// that of all, in percent of the whole. All is t and the rest, which vary independently: with the
// share s, its standard deviation is the root of (1-s)² variance(t) + s² variance(rest), over all.
// Of N events of equal weight that is the binomial one, the root of s(1-s)/N. What none of N draws
// met may still be 3/N of all, with 95 % (the rule of three), and the part that t has is smaller by
// that.
func (t tally) shareInterval(i int, all tally) float64 {
	if all.values[i] == 0 {
		return 0
	}
	if t.variance > 0 && t.events < leastEvents {
		return math.Inf(1)
	}
	s := t.values[i] / all.values[i]
	variance := (1-s)*(1-s)*t.variance + s*s*max(all.variance-t.variance, 0)
	half := max(normal95*math.Sqrt(variance), 3*s*all.variance/all.values[i])
	if t.unsited == 0 { // what has no site may all be of this one
		half += all.unsited
	}
	return 100 * half / all.values[i]
}

// An eventPart is what distinguishes the events of one method.
type eventPart struct {
	what, place, class, field string
	offset                    int64
	atOffset                  bool // the offset is known
}

// partOf reads the labels of a sample. The kind is no part of allocations, as all are recorded in
// one way.
func partOf(kind profile.EventKind, sample *pprof.Sample) eventPart {
	part := eventPart{class: stacks.Label(sample, stored.LabelClass)}
	if kind == profile.Allocations {
		part.place = stacks.Label(sample, stored.LabelGeneration)
		return part
	}
	if kind == profile.OffCPU || kind == profile.Wall {
		part.class = stacks.Label(sample, stored.LabelCause)
		return part
	}
	part.what, part.place, part.field = stacks.Label(sample, stored.LabelKind), stacks.Label(sample, stored.LabelPlace),
		stacks.Label(sample, stored.LabelField)
	if offsets := sample.NumLabel[stored.LabelOffset]; len(offsets) > 0 {
		part.offset, part.atOffset = offsets[0], true
	}
	return part
}

// eventGroups are events by something.
type eventGroups[K comparable] struct {
	list  []*eventGroup[K] // in the order of the file
	index map[K]*eventGroup[K]
}

type eventGroup[K comparable] struct {
	key K
	tally
	parts eventGroups[eventPart]
}

// get returns the group of a key.
func (g *eventGroups[K]) get(key K) *eventGroup[K] {
	group := g.index[key]
	if group == nil {
		if g.index == nil {
			g.index = make(map[K]*eventGroup[K])
		}
		group = &eventGroup[K]{key: key}
		g.index[key] = group
		g.list = append(g.list, group)
	}
	return group
}

// addPart adds to a group, and to a part of it.
func (g *eventGroups[K]) addPart(key K, part eventPart, t tally) {
	group := g.get(key)
	group.add(t)
	group.parts.get(part).add(t)
}

// sorted returns the groups by some values, the largest first one first; equals stay in the order
// of the file.
func (g *eventGroups[K]) sorted(values ...int) []*eventGroup[K] {
	return slices.SortedStableFunc(slices.Values(g.list), func(a, b *eventGroup[K]) int {
		for _, i := range values {
			if c := cmp.Compare(b.values[i], a.values[i]); c != 0 {
				return c
			}
		}
		return cmp.Compare(b.events, a.events)
	})
}

// Views are the views of each kind of events.
var Views = [profile.EventKinds]func(io.Writer, *pprof.Profile, *layout.Options) error{
	profile.Allocations: Allocations, profile.Locks: Locks, profile.Values: Values, profile.Pauses: Safepoints,
	profile.Faults: Faults, profile.Cycles: CPI, profile.OffCPU: OffCPU, profile.Wall: Wall, profile.Barriers: Barriers,
	profile.Exceptions: Exceptions,
}

// View returns the view for the events in a stored profile, or nil if it is not of events.
func View(p *pprof.Profile) func(io.Writer, *pprof.Profile, *layout.Options) error {
	if kind, ok := stacks.EventKindOf(p); ok {
		return Views[kind]
	}
	return nil
}

// storedEvents are the samples of a stored profile that is of events.
type storedEvents struct {
	kind    profile.EventKind
	stacks  *stacks.Samples
	columns []int // columns of the values
	events  int   // the column of events
	draws   bool  // OffCPU, Wall: samples have LabelDraw where they are not exact
	// effect is what variances are multiplied by: 1 unless part of the time was not observed, or
	// events were lost.
	effect float64
	stated *statedSum // sum stated by the metadata; nil if it has no sums
}

// readEvents fails if p is not of that kind of events, or if its values cannot be added up.
func readEvents(p *pprof.Profile, kind profile.EventKind) (*storedEvents, error) {
	if is, ok := stacks.EventKindOf(p); !ok || is != kind {
		d := kind.Describe()
		return nil, fmt.Errorf("the profile has no %s: record some with vmprof-agent record %s", d.Events, d.Flags())
	}
	e := &storedEvents{kind: kind, effect: 1, draws: (kind == profile.OffCPU || kind == profile.Wall) &&
		haveDraws(p.Sample)}
	types, _ := stored.EventTypes(kind)
	for i, t := range types {
		if i >= len(kind.Values()) || kind.Values()[i] != stored.ValueSum {
			s, err := stacks.NewSamples(p, t.Type)
			if err != nil {
				return nil, err
			}
			e.stacks = s
		}
		e.columns = append(e.columns, stacks.ColumnOf(p, t))
	}
	e.events = e.columns[len(types)-1]
	e.columns = e.columns[:len(types)-1]
	e.widen()
	return e, nil
}

// all yields the samples to keep that have values, with these.
func (e *storedEvents) all() iter.Seq2[*pprof.Sample, tally] { return e.those(e.stacks.Keep) }

// those yields the samples to keep, nil for all.
func (e *storedEvents) those(keep func(*pprof.Sample) bool) iter.Seq2[*pprof.Sample, tally] {
	return func(yield func(*pprof.Sample, tally) bool) {
		for _, sample := range e.stacks.Profile.Sample {
			if keep != nil && !keep(sample) {
				continue
			}
			t := tally{events: float64(sample.Value[e.events])}
			some := t.events != 0
			for i, column := range e.columns {
				t.values[i] = float64(sample.Value[column])
				some = some || t.values[i] != 0
			}
			switch main := t.values[e.kind.Main()]; {
			case main == 0 || stacks.Counted(sample):
			case e.kind == profile.Allocations && t.events == 0: // the VM counted it
				t.unsited = main
			case e.draws:
				if each := stacks.Number(sample, stored.LabelDraw); each > 0 {
					t.draw(e, sample, float64(each))
				}
			default: // effect may be infinite
				t.variance = e.effect * main * main / max(t.events, 1)
			}
			if some && !yield(sample, t) {
				return
			}
		}
	}
}

// program yields the program's frames on the stack of an event, innermost first: those that are
// neither native nor the VM's own.
func (e *storedEvents) program(sample *pprof.Sample) iter.Seq[stacks.Frame] {
	return func(yield func(stacks.Frame) bool) {
		for _, loc := range e.stacks.Own(sample) {
			for _, f := range e.stacks.At(loc) {
				if !f.Native && !strings.HasPrefix(f.Name, "[") && !yield(f) {
					return
				}
			}
		}
	}
}

// site returns the program's innermost method in which an event happened, or else whatever is
// innermost but the kernel. Of waits it is the application's, as methods of the class library only
// say how a thread waits.
func (e *storedEvents) site(sample *pprof.Sample) string {
	switch e.kind {
	case profile.Locks, profile.OffCPU, profile.Wall:
		return e.appSite(sample)
	}
	return e.innermost(sample)
}

// appSite returns the application's innermost method on the stack of an event: the one in which it
// happened, or that called the class library for it. Of stacks without one it is the class
// library's; of waits, not one that only says how a thread waits.
func (e *storedEvents) appSite(sample *pprof.Sample) string {
	library, waits := "", e.kind != profile.Allocations && stacks.Label(sample, stored.LabelState) != cause.Running
	for f := range e.program(sample) {
		switch {
		case !f.Library:
			return f.Name
		case library == "" && !(waits && cause.Waits(f.Name)):
			library = f.Name
		}
	}
	return cmp.Or(library, e.innermost(sample))
}

// innermost returns the program's innermost method, or else whatever is innermost but the kernel.
func (e *storedEvents) innermost(sample *pprof.Sample) string {
	for f := range e.program(sample) {
		return f.Name
	}
	for _, loc := range e.stacks.Own(sample) {
		for _, f := range e.stacks.At(loc) {
			if f.Flags&stacks.Kernel == 0 {
				return f.Name
			}
		}
	}
	return e.stacks.Edge(sample).Callee.Name
}

// waker returns who ended the wait of a sample, threads that do the same work together, and the
// program's method in which it did so; "" if that is not known.
func (e *storedEvents) waker(sample *pprof.Sample) (who, method string) {
	who = stacks.Label(sample, stored.LabelWaker)
	if who == "" {
		return "", ""
	}
	who = stored.ThreadGroup(who)
	if comm := stacks.Label(sample, stored.LabelWakerComm); comm != "" {
		who = comm + ": " + who
	}
	library, outside := "", ""
	for i := e.stacks.WokenAt(sample) - 1; i >= 0; i-- { // from the innermost frame on
		for _, f := range e.stacks.At(sample.Location[i]) {
			if strings.HasPrefix(f.Name, "[") {
				continue
			}
			if !f.Native && !f.Library {
				return who, f.Name
			}
			if !f.Native && library == "" && !cause.Waits(f.Name) && !strings.Contains(f.Name, "misc.Unsafe.") {
				library = f.Name
			}
			if outside == "" && f.Flags&stacks.Kernel == 0 {
				outside = f.Name
			}
		}
	}
	return who, cmp.Or(library, outside)
}
