package agent

import (
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/target"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
)

// handleObservation folds what a probe saw; mu is held.
func (a *Agent) handleObservation(raw []byte) bool {
	if a.events == nil {
		return false
	}
	a.observed.received++
	a.onObservation(raw)
	return true
}

// observationFailed accounts for an observation over which the agent panicked; mu is held.
func (a *Agent) observationFailed() {
	a.observed.discarded[profile.Failed] += a.observed.received - a.observed.folded - profile.Sum(a.observed.discarded)
}

func (a *Agent) onObservation(raw []byte) {
	o := &a.observation
	if err := bpf.DecodeObservation(raw, o); err != nil {
		a.observed.discarded[profile.Malformed]++
		return
	}
	a.oldest = min(a.oldest, o.Time)
	p := a.process(o.Header)
	p.ClassEpoch = o.ClassEpoch
	if p.Meet(&o.Sample) {
		a.dirty[p] = struct{}{}
	}
	a.stack = observedStack(a.stack[:0], o, p.Attachment.Load())
	part, ok := a.events.Covers.Part(o)
	if !ok {
		a.observed.discarded[profile.Unobserved]++
		return
	}
	e := fold.Event{Every: o.Seen.Every, TID: o.Tid, Thread: fold.ThreadName(o.Comm), Stack: a.stack, Part: part}
	folded := false
	fold := func(e *fold.Event) { folded = a.foldEvent(p, o, e) || folded }
	switch {
	case o.Seen.What == bpf.ObservedValues:
		if !a.events.ValueEvents(o, e, fold) {
			a.observed.discarded[profile.Malformed]++
			return
		}
	case o.Seen.What == bpf.ObservedFault && o.Seen.Count > 0:
		e.Labels.Place = placeName(o.Seen.Place)
		folded = a.handleFault(p, o, &e)
	case describe(o, &e, a.resolver.ClassName):
		fold(&e)
	default:
		a.observed.discarded[profile.Malformed]++
		return
	}
	if !folded {
		a.observed.discarded[profile.NoWindow]++
		return
	}
	a.observed.folded++
}

// foldEvent adds an event to all windows that want it. It is false if there is none.
func (a *Agent) foldEvent(p *fold.Process, o *bpf.Observation, e *fold.Event) (wanted bool) {
	e.Part.Apply(e)
	for w := range a.windows {
		if !w.wants(o.Pid) {
			continue
		}
		wanted = true
		if w.eventSet(p).Add(e) && p.Want(e.Stack, o.ClassEpoch, &a.nameCount) {
			a.dirty[p] = struct{}{}
		}
	}
	return wanted
}

// observedStack appends the frames of an observation to buf. Where it begins in Java code, that called what was probed: its
// innermost pc is a return address like the others. The VM's stub between the two says nothing and is left out.
func observedStack(buf []target.RawFrame, o *bpf.Observation, attachment uint32) []target.RawFrame {
	for len(o.User) > 1 && o.User[0].Kind() == bpf.FrameStub {
		o.User = o.User[1:]
	}
	buf = target.AppendStack(buf, &o.Sample, attachment)
	if len(buf) > 0 && buf[0].Kind == target.RawExact && buf[0].Frame.Kind() != bpf.FrameNative {
		buf[0].Kind = target.RawReturn
	}
	return buf
}

// describe fills in what an event is, by what its probe saw; className names classes. It is false for what no probe records.
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
		e.Sums = fold.AllocationSums(value(0), value(1), seen.Every)
	case bpf.ObservedMonitor:
		e.Kind = profile.Locks
		e.Labels.Class = className(o.Text)
		e.Delay = time.Duration(value(0))
		e.Sums = fold.EventSums{Events: 1, Values: [profile.MaxEventValues]float64{n, n, n * float64(value(0))}}
		switch {
		case seen.Flags&bpf.SeenContended == 0:
			e.Labels.What = "enter" // it was free
			e.Sums.Values[1] = 0
		case seen.Flags&bpf.SeenSpun != 0:
			e.Labels.What = "spin"
		default:
			e.Labels.What = "block"
		}
	case bpf.ObservedPark:
		e.Kind = profile.Locks
		e.Labels.Class = className(o.Text)
		e.Labels.What = "park"
		e.Delay = time.Duration(value(0))
		e.Sums = fold.EventSums{Events: 1, Values: [profile.MaxEventValues]float64{n, n, n * float64(value(0))}}
		if waitsForWork(e.Labels.Class) {
			e.Labels.What = profile.WaitForWork
			e.Sums.Values[0], e.Sums.Values[1] = 0, 0 // nothing was acquired
			// A thread that is known, and is parked for nothing, waits for work indeed.
			e.Unclear = e.Labels.Class == "" && (seen.Object != 0 || o.Flags&bpf.SampleJavaThread == 0)
		}
	case bpf.ObservedPause:
		e.Kind = profile.Pauses
		operation, collector := o.Cause()
		e.Labels.What, e.Labels.Collector = symbolize.CleanName(operation), symbolize.CleanName(collector)
		if e.Labels.Collector == "" && seen.Flags&bpf.SeenCollection != 0 {
			e.Labels.Collector = profile.UnnamedCollector
		}
		e.Sums = fold.EventSums{Events: 1, Values: [profile.MaxEventValues]float64{n, n * float64(value(0))}}
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

func placeName(place uint8) string { return placeNames[place%uint8(len(placeNames))] }

var placeNames = [...]string{
	bpf.PlaceUnknown: "", bpf.PlaceYoung: "young", bpf.PlaceSurvivor: "survivor", bpf.PlaceOld: "old", bpf.PlaceHumongous: "humongous",
}

// waitsForWork reports, by the class of the object that a thread parks for, whether it is no lock: a condition, a task, a queue,
// or nothing. What locks and semaphores of java.util.concurrent park for are their own subclasses of
// AbstractQueuedSynchronizer, which all are named Sync, NonfairSync or FairSync; a StampedLock is its own.
func waitsForWork(class string) bool {
	return !strings.HasSuffix(class, "Sync") && class != "java.util.concurrent.locks.StampedLock"
}
