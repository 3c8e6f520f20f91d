package agent

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/vmprof-agent/vmprof-agent/agent/attach"
	"github.com/vmprof-agent/vmprof-agent/agent/library"
	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// guests attaches to VMs. An image is read and its probes are attached once for all processes that map it.
type guests struct {
	agent  *Agent
	probes *attach.Probes
	images *library.Keeper[symbolize.FileKey, *process, image]

	mu       sync.Mutex
	serial   uint32
	slots    []uint32 // free
	attached int
	reads    uint64
	failures map[string]uint64
}

// newGuests attaches probes in that pool.
func newGuests(a *Agent, attaching *proc.Pool) *guests {
	g := &guests{agent: a, probes: attach.NewProbes(a.objects), failures: map[string]uint64{}}
	g.images = g.newImages(attaching)
	for slot := uint32(bpf.MaxAttached); slot > 0; slot-- {
		g.slots = append(g.slots, slot-1)
	}
	for _, cause := range proc.Causes() {
		g.failures[cause] = 0
	}
	return g
}

// findGuest attaches to p's VM if it has one. What is not ready yet is tried again later.
func (a *Agent) findGuest(p *process) {
	a.readMaps(p)
	if lib := findLibrary(p.work.maps); lib != nil {
		a.attachGuest(p, lib)
		return
	}
	// A launcher under another name than java is found by its first compilation, by frames in unknown mappings, or when it is
	// looked at again.
	now, look := monotonic(), &p.work.look
	switch {
	case p.exited.Load() || !look.due(now):
	case looksLikeJava(p.executable.File, p.comm) && look.failed(now):
		p.work.mapsRead = 0
		a.names.submitLater(p, look.pauses.next-now)
	default:
		look.pauses.next = now + retryInterval
		p.retry.Store(int64(look.pauses.next))
	}
}

func findLibrary(maps proc.Maps) *proc.Mapping {
	for i := range maps {
		if m := &maps[i]; strings.HasSuffix(m.Path, "/libjvm.so") && m.Exec {
			return m
		}
	}
	return nil
}

var errTooManyGuests = fmt.Errorf("more than %d JVMs at once", bpf.MaxAttached)

// reserve gives a slot for a VM's epochs, and the number of this attachment.
func (gs *guests) reserve() (slot, serial uint32, err error) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if len(gs.slots) == 0 {
		return 0, 0, errTooManyGuests
	}
	slot = gs.slots[len(gs.slots)-1]
	gs.slots = gs.slots[:len(gs.slots)-1]
	gs.serial++
	gs.attached++
	return slot, gs.serial, nil
}

func (gs *guests) free(slot uint32) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	gs.slots = append(gs.slots, slot)
	gs.attached--
}

// release lets go of a process that is gone. The kernel side forgets it by itself, unless it was told of it only after
// the process had executed another program.
func (gs *guests) release(p *process) {
	gs.images.Leave(p)
	if e := gs.agent.events; e != nil {
		e.leave(p)
	}
	g := p.work.guest
	if g == nil {
		return
	}
	gs.withdraw(p, g)
	gs.forgetThreads(g)
	p.work.guest, p.work.hopeless = nil, true
	g.mem.Close()
	gs.free(g.kernel.Slot)
	gs.agent.pool.Forget(p.pid)
}

// classEpoch is how many times the VM in slot has unloaded classes, as the kernel side counted.
func (gs *guests) classEpoch(slot uint32) uint32 {
	var e bpf.Epochs
	if err := gs.agent.objects.Epochs.Lookup(slot, &e); err != nil {
		return ^uint32(0) // matches no sample: nothing is named by a read that cannot be vouched for
	}
	return e.Classes
}

// count counts reads of targets, by cause of failure. That nothing is to be found at an address any more is an answer.
func (gs *guests) count(err error) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	switch {
	case err == nil, errors.Is(err, vmruntime.ErrStale), errors.Is(err, vmruntime.ErrUnknown):
		gs.reads++
	case errors.Is(err, vmruntime.ErrMalformed):
		gs.failures[proc.Cause(proc.ErrMalformed)]++
	default:
		gs.failures[proc.Cause(err)]++
	}
}

// Guests is how many VMs are attached now.
func (a *Agent) Guests() int {
	a.guests.mu.Lock()
	defer a.guests.mu.Unlock()
	return a.guests.attached
}

// close ends attempts to attach, and detaches all probes of code.
func (gs *guests) close() error {
	gs.images.Close()
	return gs.probes.Close()
}
