package events

import (
	"maps"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/events/probes"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// A received accounts for observations: received == folded + sum(discarded). Only functions that
// have the State use it.
type received struct {
	received, folded uint64
	discarded        map[string]uint64
}

func (c received) clone() received {
	c.discarded = maps.Clone(c.discarded)
	return c
}

// noEventDiscards holds every reason, so that a series exists before its first failure.
func noEventDiscards() map[string]uint64 {
	none := fold.NoDiscards()
	none[profile.Unobserved] = 0
	return none
}

// Handle folds a record of a probe's hit.
func (e *Source) Handle(s *fold.State, raw []byte) {
	c := &e.received
	c.received++
	o := &e.observation
	if err := bpf.DecodeObservation(raw, o); err != nil {
		c.discarded[profile.Malformed]++
		return
	}
	s.Received(o.Time)
	if o.Seen.What == bpf.ObservedWaker { // its process may be none of those that are profiled
		if !e.handleWaker(s, o) {
			c.discarded[profile.Malformed]++
			return
		}
		c.folded++
		return
	}
	if o.Seen.What == bpf.ObservedRelease {
		if !e.handleRelease(s, o) {
			c.discarded[profile.Malformed]++
			return
		}
		c.folded++
		return
	}
	p := e.observedProcess(s, o)
	e.stack = observedStack(e.stack[:0], o, p.Attachment.Load())
	part, ok := e.Covers.Part(o)
	if !ok {
		c.discarded[profile.Unobserved]++
		return
	}
	event := fold.Event{Every: o.Seen.Every, TID: o.Tid, Thread: p.NameOf(o.Tid, o.Comm), Comm: o.Comm, Stack: e.stack,
		Part: part}
	folded := false
	add := func(event *fold.Event) { folded = s.AddEvent(p, o.Pid, o.ClassEpoch, event) || folded }
	switch {
	case o.Seen.What == bpf.ObservedValues:
		if !e.ValueEvents(o, event, add) {
			c.discarded[profile.Malformed]++
			return
		}
	case o.Seen.What == bpf.ObservedFault && o.Seen.Count > 0:
		event.Labels.Place = placeName(o.Seen.Place)
		folded = e.handleFault(s, p, o, &event)
	case o.Seen.What == bpf.ObservedCard && o.Seen.Count > 1:
		folded = e.handleCard(s, p, o, &event)
	case o.Seen.What == bpf.ObservedFreeze:
		kind := probes.VirtualKind(o.Seen.Flags&bpf.SeenContended != 0)
		begun := e.surveys[p.Process].covers(kind, part.Sliced(), o.Time)
		kept, ok := e.virtuals.begin(s, p, o, &event, begun, e.services.Resolver.ClassName)
		switch {
		case !ok:
			c.discarded[profile.Malformed]++
			return
		case begun:
			begunVirtual(o, &event, e.services.Resolver.ClassName)
			add(&event)
		case !kept:
			c.discarded[profile.Unobserved]++
			return
		}
		folded = true // its end is to come
	case o.Seen.What == bpf.ObservedThaw:
		w, ok := e.virtuals.end(p, o, &event)
		switch {
		case !ok:
			c.discarded[profile.Malformed]++
			return
		case w == nil && e.surveys[p.Process].covers(probes.VirtualParks, part.Sliced(), o.Time):
			folded = true // it was counted when it began
		case w == nil:
			c.discarded[profile.Unobserved]++
			return
		}
		if w != nil {
			folded = s.AddEvent(p, o.Pid, w.epoch, &w.event)
		}
	case o.Seen.What == bpf.ObservedWait:
		wanted, ok := e.waits.handle(s, p, o, &event)
		if !ok {
			c.discarded[profile.Malformed]++
			return
		}
		folded = wanted
	case describe(o, &event, e.services.Resolver.ClassName):
		e.describeLock(p, o, &event)
		add(&event)
	default:
		c.discarded[profile.Malformed]++
		return
	}
	if !folded {
		c.discarded[profile.NoWindow]++
		return
	}
	c.folded++
}

// observedProcess returns the process of an observation, which may say something new of it.
func (e *Source) observedProcess(s *fold.State, o *bpf.Observation) *fold.Process {
	p := s.Process(o.Header)
	s.Unloaded(p, o.ClassEpoch)
	if p.ObserveThread(&o.Sample) {
		s.Dirty[p] = struct{}{}
	}
	return p
}

// Fail accounts for an observation during which the agent panicked.
func (e *Source) Fail(*fold.State) {
	c := &e.received
	c.discarded[profile.Failed] += c.received - c.folded - profile.Sum(c.discarded)
}

// observedStack appends the frames of an observation to buf. If it begins in Java code, that code
// called the probed function: its innermost pc is a return address like the others. The VM's stub
// between the two has no information and is left out.
func observedStack(buf []guest.RawFrame, o *bpf.Observation, attachment uint32) []guest.RawFrame {
	for len(o.User) > 1 && o.User[0].Kind() == bpf.FrameStub {
		o.User = o.User[1:]
	}
	buf = guest.AppendStack(buf, &o.Sample, attachment)
	if len(buf) > 0 && buf[0].Kind == guest.RawExact && buf[0].Frame.Kind() != bpf.FrameNative {
		buf[0].Kind = guest.RawReturn
	}
	return buf
}

// describe fills in an event from a probe's observation; className names classes. It returns false
// for an observation of an unknown kind.
func describe(o *bpf.Observation, e *fold.Event, className func([]byte) string) bool {
	seen := o.Seen
	n := float64(seen.Every)
	values := seen.Values[:seen.Count]
	value := func(i int) uint64 {
		if i < len(values) {
			return values[i]
		}
		return 0
	}
	e.Labels.Place = placeName(seen.Place)
	switch seen.What {
	case bpf.ObservedAllocation:
		e.Kind = profile.Allocations
		e.Labels.Class = className(o.Text)
		e.VMThread = value(2)
		e.Sums = fold.AllocationSums(value(0), value(1), seen.Every)
		if seen.Every == 1 && seen.Flags&bpf.SeenOutside != 0 && value(0) == value(1) {
			e.Sums.Known = e.Sums.Values // it stands for itself
		}
	case bpf.ObservedMonitor:
		e.Kind = profile.Locks
		e.Labels.Class = className(o.Text)
		e.Delay = time.Duration(value(0))
		e.Sums = fold.EventSums{Events: 1, Values: [profile.MaxEventValues]float64{n, n, n * float64(value(0))}}
		switch {
		case seen.Flags&bpf.SeenContended == 0:
			e.Labels.What = "enter" // the monitor was free
			e.Sums.Values[1] = 0
		case seen.Flags&bpf.SeenSpun != 0:
			e.Labels.What = "spin"
		default:
			e.Labels.What = "block"
		}
	case bpf.ObservedPark:
		lockWait(e, className(o.Text), "park")
		waited(e, seen.Every, value(0))
		if e.Labels.What == profile.WaitForWork {
			// If the thread is known and parked for no object, it does wait for work.
			e.Unclear = e.Labels.Class == "" && (seen.Object != 0 || o.Flags&bpf.SampleJavaThread == 0)
		}
	case bpf.ObservedPause:
		e.Kind = profile.Pauses
		operation, collector := o.Cause()
		e.Labels.What, e.Labels.Collector = symbol.CleanName(operation), symbol.CleanName(collector)
		if e.Labels.Collector == "" && seen.Flags&bpf.SeenCollection != 0 {
			e.Labels.Collector = profile.UnnamedCollector
		}
		e.Sums = fold.EventSums{Events: 1, Values: [profile.MaxEventValues]float64{n, n * float64(value(0))}}
	case bpf.ObservedException:
		e.Kind = profile.Exceptions
		e.Labels.Place = ""
		e.Labels.Class = className(o.Text)
		e.Sums = fold.EventSums{Events: 1, Values: [profile.MaxEventValues]float64{n}}
	case bpf.ObservedOverflow:
		e.Kind = profile.Cycles
		e.Labels.Place = ""
		e.Sums = fold.EventSums{Events: 1}
		which := 0
		if seen.Probe == bpf.ProbeInstructions {
			which = 1
		}
		e.Sums.Values[which] = n * float64(value(0))
	default:
		return false
	}
	return true
}

// exceptionBasis says which exceptions there are no records of.
const exceptionBasis = "exceptions without a stack trace are not counted: those of classes that refuse one, and " +
	"those that the JVM made in advance, for code that throws the same one again and again " +
	"(-XX:-OmitStackTraceInFastThrow)"

// lockWait labels the event of a wait for an object of that class: block for a monitor, park for
// what may be no lock.
func lockWait(e *fold.Event, class, what string) {
	e.Kind = profile.Locks
	e.Labels.Class, e.Labels.What = class, what
	if what == "park" && waitsForWork(class) {
		e.Labels.What = profile.WaitForWork
	}
}

// waited sets the values of a labelled wait of that many ns, which was drawn of so many.
func waited(e *fold.Event, every uint32, ns uint64) {
	n := float64(every)
	e.Delay = time.Duration(ns)
	e.Sums = fold.EventSums{Events: 1, Values: [profile.MaxEventValues]float64{n, n, n * float64(ns)}}
	if e.Labels.What == profile.WaitForWork {
		e.Sums.Values[0], e.Sums.Values[1] = 0, 0 // nothing was acquired
	}
}

func placeName(place uint8) string { return placeNames[place%uint8(len(placeNames))] }

var placeNames = [...]string{
	bpf.PlaceUnknown: "", bpf.PlaceYoung: "young", bpf.PlaceSurvivor: "survivor", bpf.PlaceOld: "old",
	bpf.PlaceHumongous: "humongous",
}

// waitsForWork reports, by the class of the object that a thread parks for, whether it is not a
// lock: a condition, a task, a queue, or nothing. Locks and semaphores of java.util.concurrent park
// for their own subclasses of AbstractQueuedSynchronizer, which are all named Sync, NonfairSync or
// FairSync; a StampedLock parks for itself.
func waitsForWork(class string) bool {
	return !strings.HasSuffix(class, "Sync") && class != "java.util.concurrent.locks.StampedLock"
}
