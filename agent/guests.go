package agent

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
	"unique"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/attach"
	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot"
)

// A guest is an attached VM: the kernel side can walk its stacks, and vm names what is found there.
type guest struct {
	vm      *hotspot.Process
	mem     *proc.Memory
	kernel  *bpf.HotspotProcess // what the kernel side was told
	refresh backoff             // until all kinds of code have been seen
	mapping unique.Handle[symbolize.Mapping]
}

// guests attaches to VMs. An image is read and its probes are attached once for all processes that map it.
type guests struct {
	agent *Agent

	probing sync.Mutex // held while probes are attached, for which the kernel visits all processes that map a library
	probes  *attach.Probes

	mu       sync.Mutex
	images   map[symbolize.FileKey]*image
	serial   uint32
	slots    []uint32 // free
	attached int
	reads    uint64
	failures map[string]uint64
}

func newGuests(a *Agent) *guests {
	g := &guests{agent: a, probes: attach.NewProbes(a.objects), images: map[symbolize.FileKey]*image{}, failures: map[string]uint64{}}
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
	if !looksLikeJava(p.executable.File, p.comm) {
		return // a launcher under another name is found by its first compilation, or by frames in unknown mappings
	}
	if pause, ok := p.work.retry.again(); ok && !p.exited.Load() {
		p.work.mapsRead = 0
		a.names.submitLater(p, pause)
	}
}

// attachGuest attaches to the VM whose library p maps. While there is hope it tries again, ever more rarely.
func (a *Agent) attachGuest(p *process, lib *proc.Mapping) {
	if !p.work.attach.due(monotonic()) {
		return
	}
	g, err := a.guests.attach(p, lib)
	hope := passes(err)
	switch {
	case err == nil:
		p.work.guest = g
		return
	case p.exited.Load(), errors.Is(err, proc.ErrGone):
		return
	case hope:
		a.names.submitLater(p, p.work.attach.next-monotonic())
	}
	p.work.hopeless = !hope
	if hope && p.work.attach.attempts != patience {
		return
	}
	a.log.Warn("cannot attach to JVM; its native frames are still shown", "pid", p.pid, "err", err, "retrying", hope)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.runtime = "hotspot"
	p.notes = append(p.notes, fmt.Sprintf("Java frames of process %d are missing: %v", p.pid, err))
}

// patience is after how many attempts people are told that a VM cannot be attached yet: that is after ten seconds.
const patience = 12

// passes tells whether what could not be done now may be done later.
func passes(err error) bool {
	return slices.ContainsFunc([]error{
		vmruntime.ErrStarting, errTooManyGuests, proc.ErrTimeout, proc.ErrQuarantined, proc.ErrExhausted,
		unix.EMFILE, unix.ENFILE,
	}, func(passing error) bool { return errors.Is(err, passing) })
}

func findLibrary(maps proc.Maps) *proc.Mapping {
	for i := range maps {
		if m := &maps[i]; strings.HasSuffix(m.Path, "/libjvm.so") && m.Exec {
			return m
		}
	}
	return nil
}

// errArchitecture: the walker's rules for HotSpot frames are those of x86-64.
var errArchitecture = errors.New("stacks of HotSpot are walked on x86-64 only, so far")

// attach tells the kernel side how to walk p's stacks, and reads the maps that name what is found there.
func (gs *guests) attach(p *process, lib *proc.Mapping) (*guest, error) {
	a := gs.agent
	if runtime.GOARCH != "amd64" {
		return nil, errArchitecture
	}
	im, err := gs.image(p, lib)
	if err != nil {
		return nil, err
	}
	if im.err != nil {
		return nil, im.err
	}
	bias, err := im.segments.Bias(lib.Start, lib.Offset)
	if err != nil {
		return nil, err
	}
	mem, err := proc.OpenMemory(a.opt.Proc, p.identity(), a.pool)
	if err != nil {
		return nil, fmt.Errorf("open memory: %w", err)
	}
	slot, serial, err := gs.reserve()
	if err != nil {
		mem.Close()
		return nil, err
	}
	fail := func(err error) (*guest, error) {
		mem.Close()
		gs.free(slot)
		return nil, err
	}
	target := vmruntime.Target{Memory: mem, Bias: bias}
	if im.probes == nil {
		target.Epoch = func() uint32 { return gs.classEpoch(slot) }
	}
	attached, err := im.img.Attach(target)
	if err != nil {
		return fail(err)
	}
	vm := attached.(*hotspot.Process)
	k, err := kernelLayout(vm.Layout())
	if err != nil {
		return fail(err)
	}
	k.StartTicks, k.Serial, k.Slot = p.identity().Ticks(), serial, slot
	if im.probes == nil {
		k.Flags |= bpf.HotspotUnloadEvents
	}
	p.attachment.Store(serial) // first: samples may tell of it at once
	if err := gs.announce(p, k, ebpf.UpdateAny); err != nil {
		return fail(err)
	}
	g := &guest{vm: vm, mem: mem, kernel: k, refresh: backoff{first: 100 * time.Millisecond}, mapping: unique.Make(symbolize.Mapping{
		File: "[jit:HotSpot]", Start: k.CodeLow, Limit: k.CodeHigh,
	})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.runtime, p.vm = "hotspot", vm.Describe()
	p.notes = slices.Clone(vm.Notes()) // what was missing until now is not any more
	if im.probes != nil {
		p.notes = append(p.notes, fmt.Sprintf("code of process %d is not followed live: %v", p.pid, im.probes))
	}
	a.log.Debug("attached", "pid", p.pid, "vm", p.vm)
	return g, nil
}

// announce tells the kernel side of p's VM, unless p is gone: then its pid may be another process's, whose VM was
// announced already.
func (gs *guests) announce(p *process, k *bpf.HotspotProcess, how ebpf.MapUpdateFlags) error {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if p.exited.Load() {
		return fmt.Errorf("announce VM to the kernel side: %w", proc.ErrGone)
	}
	if err := gs.agent.objects.Processes.Update(uint32(p.pid), k, how); err != nil {
		return fmt.Errorf("announce VM to the kernel side: %w", err)
	}
	return nil
}

// refresh tells the kernel side of kinds of code that the VM had not generated when it was attached.
func (gs *guests) refresh(p *process, g *guest) {
	if len(g.vm.Layout().Pending) == 0 || !g.refresh.due(monotonic()) {
		return
	}
	changed, err := g.vm.Refresh()
	gs.count(err)
	if err == nil && changed {
		k, err := kernelLayout(g.vm.Layout())
		if err != nil {
			return
		}
		k.StartTicks, k.Serial, k.Slot, k.Flags = g.kernel.StartTicks, g.kernel.Serial, g.kernel.Slot, k.Flags|g.kernel.Flags
		if gs.announce(p, k, ebpf.UpdateExist) == nil {
			g.kernel = k
		}
	}
	if len(g.vm.Layout().Pending) > 0 {
		gs.agent.names.submitLater(p, g.refresh.next-monotonic())
	}
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
	g := p.work.guest
	if g == nil {
		return
	}
	gs.withdraw(p, g)
	p.work.guest, p.work.hopeless = nil, true
	g.mem.Close()
	gs.free(g.kernel.Slot)
	gs.agent.pool.Forget(p.pid)
}

// withdraw has the kernel side forget p's VM, but not one that has the pid now.
func (gs *guests) withdraw(p *process, g *guest) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	var k bpf.HotspotProcess
	if m := gs.agent.objects.Processes; m.Lookup(uint32(p.pid), &k) == nil && k.Serial == g.kernel.Serial {
		m.Delete(uint32(p.pid)) // it may be gone by now, which is as well
	}
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

func (gs *guests) close() error {
	gs.probing.Lock()
	defer gs.probing.Unlock()
	return gs.probes.Close()
}
