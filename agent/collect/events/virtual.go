package events

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/events/probes"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// Virtual threads take turns on threads of the kernel, their carriers. One that waits gives its
// carrier up: then no thread of the kernel waits for it. The kernel side records its stack when a
// wait begins, and how long it was when it ends.

// virtuals are waits of virtual threads that have begun and not ended. Only functions that have the
// State use them.
type virtuals struct {
	waiting map[virtualThread]*virtualWait
	frames  int                              // frames of all waits
	ended   map[virtualProcess]time.Duration // time of waits that ended, and were not only counted when they began
}

// A virtualProcess is a process, and a kind of waits of its virtual threads.
type virtualProcess struct {
	process *guest.Process
	kind    int
}

type virtualThread struct {
	process *fold.Process
	id      uint64
}

// A virtualWait is one whose end is to come.
type virtualWait struct {
	event  fold.Event // with a stack of its own
	epoch  uint32
	begin  uint64 // ns of CLOCK_MONOTONIC
	absent bool   // the kernel side did not know it any more when it was last asked
	// counted says that windows that have ended have the part before their end.
	counted bool
	begun   bool // it was counted when it began, and surveys may say how long it is
}

// Bounds on waits that have not ended. The kernel side knows no more of them than maxVirtual.
const (
	maxVirtual       = 1 << 16
	maxVirtualFrames = 1 << 19 // 24 bytes each
)

// begin keeps the record of a wait that begins; begun says that it is counted now. It returns false
// if there is no room for it; ok is false if the record is malformed.
func (v *virtuals) begin(
	s *fold.State, p *fold.Process, o *bpf.Observation, event *fold.Event, begun bool, className func([]byte) string,
) (kept, ok bool) {
	if o.Seen.Count < 2 {
		return false, false
	}
	w := &virtualWait{event: *event, epoch: o.ClassEpoch, begin: o.Seen.Values[1], begun: begun}
	w.event.Stack = slices.Clone(event.Stack)
	describeVirtual(o, &w.event, className)
	return v.keep(s, virtualThread{p, o.Seen.Values[0]}, w), true
}

// keep keeps a wait, instead of an earlier one of the thread. It returns false if there is no room.
func (v *virtuals) keep(s *fold.State, key virtualThread, w *virtualWait) bool {
	v.forget(key)
	if len(v.waiting) == maxVirtual || v.frames+len(w.event.Stack) > maxVirtualFrames {
		return false
	}
	if v.waiting == nil {
		v.waiting = map[virtualThread]*virtualWait{}
	}
	v.waiting[key] = w
	v.frames += len(w.event.Stack)
	s.Want(key.process, w.event.Stack, w.epoch)
	return true
}

// kind is that of a wait that has begun.
func (w *virtualWait) kind() int {
	return probes.VirtualKind(w.event.Labels.What == waitNames[probes.VirtualBlocks])
}

// still is the event of a wait that lasts still at some time of CLOCK_MONOTONIC.
func (w *virtualWait) still(at time.Duration) *fold.Event {
	event := w.event
	begin := time.Duration(w.begin)
	waited(&event, max(event.Every, 1), uint64(at-begin))
	event.Delay = 0 // The wait does not stand for longer ones.
	event.Lock = &fold.LockWait{Since: begin, Until: at, Counted: w.counted, Waiting: true}
	return &event
}

// finish adds the waits that last still to a window that ends then. Those of which always is false
// are not observed all the time: they may have ended.
func (v *virtuals) finish(
	s *fold.State, window *fold.Window, end time.Duration, always func(*guest.Process, int) bool,
) {
	for key, w := range v.waiting {
		if w.absent || w.begun || time.Duration(w.begin) >= end || !always(key.process.Process, w.kind()) {
			continue
		}
		if window.AddLockWait(s, key.process, uint32(key.process.PID), w.epoch, w.still(end)) {
			w.counted = true
		}
	}
}

// settle counts the waits of a kind up to then, and forgets them: from then on surveys say how long
// they are, or have been all along if lengths is false.
func (v *virtuals) settle(s *fold.State, p *guest.Process, kind int, then time.Duration, lengths bool) {
	delete(v.ended, virtualProcess{p, kind})
	for key, w := range v.waiting {
		if key.process.Process != p || w.kind() != kind || w.begun || time.Duration(w.begin) >= then {
			continue
		}
		event := w.still(then)
		if !lengths {
			event.Sums.Values[profile.Locks.Main()] = 0
		}
		s.AddEvent(key.process, uint32(p.PID), w.epoch, event)
		v.forget(key)
	}
}

// describeVirtual labels the event of a wait that begins. It is the virtual thread's: its carrier
// goes on with others.
func describeVirtual(o *bpf.Observation, event *fold.Event, className func([]byte) string) {
	event.TID, event.Thread, event.Comm = 0, virtualName, nil
	lockWait(event, className(o.Text), waitNames[probes.VirtualKind(o.Seen.Flags&bpf.SeenContended != 0)])
}

// begunVirtual makes an event of a wait that begins, whose length surveys will say.
func begunVirtual(o *bpf.Observation, event *fold.Event, className func([]byte) string) {
	describeVirtual(o, event, className)
	waited(event, event.Every, 0)
	event.Length = fold.LengthsLater
}

// end returns the event of a wait that ends; nil if its begin is not known, or belongs to another
// one. ok is false if the record is malformed.
func (v *virtuals) end(p *fold.Process, o *bpf.Observation, event *fold.Event) (w *virtualWait, ok bool) {
	if o.Seen.Count < 3 {
		return nil, false
	}
	key := virtualThread{p, o.Seen.Values[0]}
	if w = v.waiting[key]; w == nil || w.begin != o.Seen.Values[1] {
		return nil, true
	}
	v.forget(key)
	w.event.Part, w.event.Every = event.Part, event.Every
	waited(&w.event, event.Every, o.Seen.Values[2])
	if w.begun {
		w.event.Length, w.event.Sums.Values[0], w.event.Sums.Values[1] = fold.LengthsSliced, 0, 0
	} else {
		v.count(virtualProcess{p.Process, w.kind()}, time.Duration(w.event.Sums.Values[profile.Locks.Main()]))
	}
	if begin := time.Duration(w.begin); w.counted {
		w.event.Lock = &fold.LockWait{Since: begin, Until: begin + w.event.Delay, Counted: true}
	}
	return w, true
}

func (v *virtuals) count(of virtualProcess, length time.Duration) {
	if v.ended == nil {
		v.ended = map[virtualProcess]time.Duration{}
	}
	v.ended[of] += length
}

func (v *virtuals) forget(key virtualThread) {
	if w := v.waiting[key]; w != nil {
		v.frames -= len(w.event.Stack)
		delete(v.waiting, key)
	}
}

// sweep forgets waits that the kernel side has not known for the time since the last call: their
// ends were not seen.
func (v *virtuals) sweep(known map[bpf.VirtualThread]bpf.UnmountedWait) {
	maps.DeleteFunc(v.ended, func(of virtualProcess, _ time.Duration) bool { return of.process.Exited.Load() })
	for key, w := range v.waiting {
		f, ok := known[bpf.VirtualThread{Serial: key.process.Attachment.Load(), Id: key.id}]
		if ok = ok && f.Begin == w.begin; !ok && w.absent {
			v.forget(key)
		}
		w.absent = !ok
	}
}

// needNames calls need for the frames of p's virtual threads that wait.
func (v *virtuals) needNames(p *fold.Process, need func(guest.RawFrame)) {
	for key, w := range v.waiting {
		if key.process == p {
			for _, f := range w.event.Stack {
				need(f)
			}
		}
	}
}

// Why waits of virtual threads are missing.
const (
	virtualApart   = "waiting virtual threads are on no kernel thread"
	virtualUnknown = "their virtual threads could not be read"
	surveysFailed  = "surveys of them failed"
	seedingFailed  = "which of them already waited when the probes were attached is not known"
	virtualCut     = "their ends were not seen: most of them were longer than the time slices in which they are " +
		"observed"
)

// virtualExtents says how many of the waits of a process's virtual threads were observed, and how
// much of their time was not.
func (e *Source) virtualExtents(
	w *fold.Window, of *fold.Process, apart apartThreads, s surveyedPart, before, after virtualCounts,
) (list []profile.Extent) {
	p := of.Process
	if !e.RanVirtual(p) {
		return nil
	}
	for _, kind := range [...]profile.EventKind{profile.OffCPU, profile.Wall} {
		if e.Options.Kinds[kind] {
			list = append(list, apart.extent(kind, w, of))
		}
	}
	if !e.Options.Kinds[profile.Locks] {
		return list
	}
	x := profile.Extent{Subject: profile.Locks.String(), What: probes.VirtualWaits, Unit: "count",
		Source: "probes of the JVM"}
	if !e.FollowsVirtual(p) {
		x.Miss(0, virtualApart+", and libjvm has no symbols for following them")
		return append(list, x)
	}
	serial := p.Attachment.Load()
	c := after[serial]
	if s.any {
		c.Ended, c.Still = c.Begun, 0 // they count when they begin
	}
	measure(&x, c, before[serial])
	if s.lack != "" {
		x.Miss(0, s.lack)
	}
	return append(list, x)
}

// virtualCounts are the waits of virtual threads of all VMs, by their serials.
type virtualCounts map[uint32]probes.VirtualCount

// measure sets how many waits there were since before, and how many of them were observed: from
// their begin to their end, or until now.
func measure(x *profile.Extent, c, before probes.VirtualCount) {
	// Waits may turn out to be others.
	since := func(after, before uint64) float64 { return float64(max(after, before) - before) }
	unknown, waits := since(c.Unknown, before.Unknown), since(c.Begun, before.Begun)+float64(before.Still)
	x.There, x.Observed = waits+unknown, min(since(c.Ended, before.Ended)+float64(c.Still), waits)
	for why, n := range map[string]float64{virtualUnknown: unknown, virtualCut: waits - x.Observed} {
		if n > 0 {
			x.Miss(n, why)
		}
	}
}

// note says which waits of p's virtual threads are not part of its locks; "" if there were none
// since before.
func (c virtualCounts) note(p *guest.Process, before virtualCounts) string {
	serial := p.Attachment.Load()
	others := c[serial].Others - before[serial].Others
	if others == 0 {
		return ""
	}
	return fmt.Sprintf("%d waits of virtual threads for no object are not included: sleep, I/O and Thread.yield are "+
		"not waits for locks", others)
}
