package events

import (
	"encoding/binary"
	"slices"
	"sync"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// maxFaults bounds the page faults, and cards of write barriers, of a process that wait for the
// lookup of their object. Those beyond it are recorded without one.
const maxFaults = 4096

// A fault is a page fault, or a card of a write barrier, whose object is not known yet. The worker
// that handles the process looks it up. Then it is added to the windows that were open when it was
// received.
type fault struct {
	event   fold.Event
	address uint64   // address of the data; for a write barrier, of the card
	bases   []uint64 // addresses where objects may begin: the thread's registers
	stops   uint32   // safepoint count of the VM at the fault
	process *fold.Process
	windows []*fold.Window
}

// handleFault folds a page fault with its address, or leaves it to the worker.
func (e *Source) handleFault(s *fold.State, p *fold.Process, o *bpf.Observation, event *fold.Event) (wanted bool) {
	event.Kind = profile.Faults
	event.Sums = fold.EventSums{Events: 1, Values: [profile.MaxEventValues]float64{float64(o.Seen.Every)}}
	return e.lookUpLater(s, p, o, event)
}

// lookUpLater leaves an event, whose first value leads to an object, to the worker.
func (e *Source) lookUpLater(s *fold.State, p *fold.Process, o *bpf.Observation, event *fold.Event) (wanted bool) {
	if o.Attachment == 0 || o.Attachment != p.Attachment.Load() {
		return s.AddEvent(p, o.Pid, o.ClassEpoch, event) // The VM is not attached: the object is unknown.
	}
	f := fault{process: p, event: *event, address: o.Seen.Values[0], stops: o.Seen.Stops}
	for _, w := range s.Windows() {
		if w.Wants(int(o.Pid)) {
			f.windows = append(f.windows, w)
			w.EventSet(p)
		}
	}
	if len(f.windows) == 0 {
		return false
	}
	f.event.Stack = slices.Clone(event.Stack)
	for text := o.Text; len(text) >= 8; text = text[8:] {
		f.bases = append(f.bases, binary.NativeEndian.Uint64(text))
	}
	s.Want(p, f.event.Stack, o.ClassEpoch)
	if !e.faults.add(f) {
		f.fold(s)
		return true
	}
	s.Expedite(p)
	return true
}

// fold adds the fault to its windows.
func (f *fault) fold(*fold.State) {
	for _, w := range f.windows {
		if s := w.Events[f.process]; s != nil && !w.Named {
			s.Add(&f.event)
		}
	}
}

// lookUpFaults labels all waiting faults with what was touched.
func (e *Source) lookUpFaults(p *guest.Process, faults []fault) {
	for i := range faults {
		g := p.VM()
		switch {
		case g == nil:
		case faults[i].event.Kind == profile.Barriers:
			locateCard(e.services.Resolver, g, &faults[i])
		default:
			locate(e.services.Resolver, g, &faults[i])
		}
	}
	e.foldFaults(p, faults)
}

// foldFaults adds faults, the next ones of the queue, to their windows.
func (e *Source) foldFaults(p *guest.Process, faults []fault) {
	e.faults.done(p, len(faults))
	e.services.Owner.Do(func(s *fold.State) {
		for i := range faults {
			faults[i].fold(s)
		}
	})
}

// A faultQueue holds page faults that wait for a worker, by process. The zero value is empty.
type faultQueue struct {
	mu      sync.Mutex
	waiting map[*guest.Process][]fault
}

// add appends a fault. It returns false if too many of the process wait.
func (q *faultQueue) add(f fault) bool {
	p := f.process.Process
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting[p]) >= maxFaults {
		return false
	}
	if q.waiting == nil {
		q.waiting = map[*guest.Process][]fault{}
	}
	q.waiting[p] = append(q.waiting[p], f)
	return true
}

// pending returns the faults of a process, which stay in the queue until they are done.
func (q *faultQueue) pending(p *guest.Process) []fault {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clip(q.waiting[p])
}

// done removes the first n faults of a process.
func (q *faultQueue) done(p *guest.Process, n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if rest := q.waiting[p][n:]; len(rest) > 0 {
		q.waiting[p] = rest
	} else {
		delete(q.waiting, p)
	}
}

// locate labels a fault with the region of its address. An object is only named if no collection
// can have moved it since.
func locate(resolver *guest.Resolver, g *guest.VM, f *fault) {
	labels := &f.event.Labels
	heap, err := guest.As[vmruntime.HeapReader](g)
	var low, high uint64
	moving, known := false, false
	if err == nil {
		low, high, moving, known = heap.HeapBounds()
	}
	switch {
	case f.address >= g.Kernel.CodeLow && f.address < g.Kernel.CodeHigh:
		labels.Place = "code"
	case !known || f.address < low || f.address >= high:
		labels.Place = "native" // or a stack; the caller knows those of threads
	case moving:
		labels.Place = "heap"
	default:
		if labels.Place == "" {
			labels.Place = "heap"
		}
		object, err := heap.PlaceAt(f.address, f.bases...)
		resolver.CountRead(err)
		if err != nil || resolver.SafepointPauses(g) != f.stops {
			return
		}
		labels.Class, labels.Offset = object.Class, int32(min(object.Offset, 1<<31-1))
		if object.Field != "" {
			labels.Field = object.Field
		}
		if object.Index >= 0 {
			labels.Offset = 0 // elements are not distinguished
			labels.Field = "[]"
		}
	}
}
