package agent

import (
	"encoding/binary"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot"
)

// maxFaults bounds the page faults of a process whose object is still to be looked up. Those beyond it are told without.
const maxFaults = 4096

// A fault is a page fault whose object is not known yet. It is looked up by the worker that has the process, and then goes
// into the windows that were open when it was received.
type fault struct {
	event   event
	address uint64
	bases   []uint64 // addresses that objects may begin at: the thread's registers
	stops   uint32   // of the VM, when it happened
	windows []*Window
}

// handleFault folds a page fault, which has its address, or leaves it to the worker; mu is held.
func (a *Agent) handleFault(p *process, o *bpf.Observation, e *event) (wanted bool) {
	e.kind = profile.Faults
	e.sums = eventSums{events: 1, values: [profile.MaxEventValues]float64{float64(o.Seen.Every)}}
	address := o.Seen.Values[0]
	if o.Attachment == 0 || o.Attachment != p.attachment.Load() {
		return a.foldEvent(p, o, e) // of no VM: what was touched cannot be told
	}
	f := fault{event: *e, address: address, stops: o.Seen.Stops}
	for w := range a.windows {
		if w.wants(o.Pid) {
			f.windows = append(f.windows, w)
			w.eventSet(p)
		}
	}
	if len(f.windows) == 0 {
		return false
	}
	f.event.stack = slices.Clone(e.stack)
	for text := o.Text; len(text) >= 8; text = text[8:] {
		f.bases = append(f.bases, binary.NativeEndian.Uint64(text))
	}
	if p.want(f.event.stack, o.ClassEpoch, &a.nameCount) {
		a.dirty[p] = struct{}{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.faults) >= maxFaults {
		f.fold(p)
		return true
	}
	p.faults = append(p.faults, f)
	a.dirty[p] = struct{}{}
	a.urgent = true
	return true
}

// fold adds the fault to its windows; agent.mu is held.
func (f *fault) fold(p *process) {
	for _, w := range f.windows {
		if s := w.events[p]; s != nil && !w.named {
			s.add(&f.event)
		}
	}
}

// lookUpFaults tells of all faults that wait what was touched.
func (a *Agent) lookUpFaults(p *process, faults []fault) {
	for i := range faults {
		if g := p.work.guest; g != nil {
			a.locate(g, &faults[i])
		}
	}
	p.work.faults = nil
	a.foldFaults(p, faults)
}

// foldFaults adds faults to their windows.
func (a *Agent) foldFaults(p *process, faults []fault) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range faults {
		faults[i].fold(p)
	}
}

// locate labels a fault with what its address is in. An object is only told if no collection can have moved it since.
func (a *Agent) locate(g *guest, f *fault) {
	labels := &f.event.labels
	l := g.vm.Layout()
	switch {
	case f.address >= l.Cache.Low && f.address < l.Cache.High:
		labels.Place = "code"
	case !l.HasObjects || f.address < l.Objects.Heap.Low || f.address >= l.Objects.Heap.High:
		labels.Place = "native" // or a stack: told by whoever knows the thread's
	case movesAlways(l.Objects.Heap.Collector):
		labels.Place = "heap"
	default:
		if labels.Place == "" {
			labels.Place = "heap"
		}
		object, err := g.vm.ObjectAt(f.address, f.bases...)
		a.guests.count(err)
		if err != nil || a.guests.stops(g.kernel.Slot) != f.stops {
			return
		}
		labels.Class, labels.Offset = object.Class, int32(min(object.Offset, 1<<31-1))
		if object.Field.Name != "" {
			labels.Field = object.Field.Name
		}
		if object.Index >= 0 {
			labels.Offset = 0 // elements are not told apart
			labels.Field = "[]"
		}
	}
}

// movesAlways tells of a collector that it moves objects while Java threads run: an address says nothing afterwards.
func movesAlways(c hotspot.Collector) bool {
	return c == hotspot.CollectorZ || c == hotspot.CollectorShenandoah || c == hotspot.CollectorUnknown
}

// stops is how often the VM in slot has stopped its Java threads.
func (gs *guests) stops(slot uint32) uint32 {
	var e bpf.Epochs
	if err := gs.agent.objects.Epochs.Lookup(slot, &e); err != nil || e.Stopped != 0 {
		return ^uint32(0) // matches no observation
	}
	return e.Stops
}
