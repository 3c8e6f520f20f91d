package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"
	"unique"

	"github.com/cilium/ebpf"

	"github.com/vmprof-agent/vmprof-agent/agent/attach"
	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/elffile"
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

	mu       sync.Mutex
	probes   *attach.Probes
	images   map[imageKey]*image
	serial   uint32
	slots    []uint32 // free
	attached int
	reads    uint64
	failures map[string]uint64
}

type imageKey struct {
	dev, inode uint64
}

type image struct {
	once     sync.Once
	img      vmruntime.Image
	segments elffile.Segments
	err      error // why there is no img
	probes   error // why code is not followed live, nil if it is
}

func newGuests(a *Agent) *guests {
	g := &guests{agent: a, probes: attach.NewProbes(a.objects), images: map[imageKey]*image{}, failures: map[string]uint64{}}
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
	lib := findLibrary(p.work.maps)
	var err error
	if lib != nil {
		var g *guest
		if g, err = a.guests.attach(p, lib); err == nil {
			p.work.guest = g
			return
		}
		if !errors.Is(err, vmruntime.ErrStarting) {
			p.work.hopeless = true
			a.log.Warn("cannot attach to JVM; its native frames are still shown", "pid", p.pid, "err", err)
			p.mu.Lock()
			p.runtime = "hotspot"
			p.notes = append(p.notes, fmt.Sprintf("Java frames of process %d are missing: %v", p.pid, err))
			p.mu.Unlock()
			return
		}
	}
	if lib == nil && !looksLikeJava(p.executable.File, p.comm) {
		return // a launcher under another name is found by its first compilation, or by frames in unknown mappings
	}
	if pause, ok := p.work.retry.again(); ok && !p.exited.Load() {
		p.work.mapsRead = 0
		a.names.submitLater(p, pause)
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

// errArchitecture: the walker's rules for HotSpot frames are those of x86-64.
var errArchitecture = errors.New("stacks of HotSpot are walked on x86-64 only, so far")

// attach tells the kernel side how to walk p's stacks, and reads the maps that name what is found there.
func (gs *guests) attach(p *process, lib *proc.Mapping) (*guest, error) {
	a := gs.agent
	if runtime.GOARCH != "amd64" {
		return nil, errArchitecture
	}
	im := gs.image(p, lib)
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
	if err := a.objects.Processes.Put(uint32(p.pid), k); err != nil {
		return fail(fmt.Errorf("announce VM to the kernel side: %w", err))
	}
	g := &guest{vm: vm, mem: mem, kernel: k, refresh: backoff{first: 100 * time.Millisecond}, mapping: unique.Make(symbolize.Mapping{
		File: "[jit:HotSpot]", Start: k.CodeLow, Limit: k.CodeHigh,
	})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.runtime, p.vm = "hotspot", vm.Describe()
	p.notes = append(p.notes, vm.Notes()...)
	if im.probes != nil {
		p.notes = append(p.notes, fmt.Sprintf("code of process %d is not followed live: %v", p.pid, im.probes))
	}
	p.attachment.Store(serial)
	a.log.Debug("attached", "pid", p.pid, "vm", p.vm)
	return g, nil
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
		if gs.agent.objects.Processes.Update(uint32(p.pid), k, ebpf.UpdateExist) == nil {
			g.kernel = k
		}
	}
	if len(g.vm.Layout().Pending) > 0 {
		gs.agent.names.submitLater(p, g.refresh.next-monotonic())
	}
}

// image reads a libjvm, and attaches its probes, once.
func (gs *guests) image(p *process, lib *proc.Mapping) *image {
	key := imageKey{lib.Dev, lib.Inode}
	gs.mu.Lock()
	im := gs.images[key]
	if im == nil {
		im = &image{}
		gs.images[key] = im
	}
	gs.mu.Unlock()
	im.once.Do(func() {
		f, err := gs.openLibrary(p, lib)
		if err != nil {
			im.err = err
			return
		}
		defer f.Close()
		gs.read(im, f)
	})
	return im
}

// maxLibrary bounds a libjvm; debug builds with symbols have 400 MB.
const maxLibrary = 1 << 30

func (gs *guests) openLibrary(p *process, lib *proc.Mapping) (*os.File, error) {
	a := gs.agent
	return proc.Call(context.Background(), a.pool, p.pid, func() (*os.File, error) {
		return a.opt.Proc.OpenMapped(p.pid, lib, maxLibrary)
	})
}

func (gs *guests) read(im *image, f *os.File) {
	st, err := f.Stat()
	if err != nil {
		im.err = fmt.Errorf("read libjvm: %w", err)
		return
	}
	lib, err := elffile.Open(f, st.Size())
	if err != nil {
		im.err = fmt.Errorf("read libjvm: %w", err)
		return
	}
	im.segments = lib.Segments()
	im.img, im.err = hotspot.Runtime{}.Image(lib)
	if im.img == nil && im.err == nil {
		im.err = errNotHotSpot
	}
	if im.err != nil {
		return
	}
	if im.probes = gs.attachProbes(lib, f); im.probes != nil {
		gs.agent.log.Warn("code of JVMs is not followed live", "library", f.Name(), "err", im.probes)
	}
}

func (gs *guests) attachProbes(lib *elffile.File, f *os.File) error {
	probes, err := lib.Probes()
	if err != nil {
		return fmt.Errorf("read its probes: %w", err)
	}
	sites, err := probeSites(probes)
	if err != nil {
		return err
	}
	if len(sites.Load) == 0 || len(sites.CodeUnload) == 0 || len(sites.ClassUnload) == 0 {
		return errors.New("this libjvm was built without USDT probes")
	}
	gs.mu.Lock()
	defer gs.mu.Unlock()
	return gs.probes.Attach(f, sites)
}

var errNotHotSpot = errors.New("its libjvm is not HotSpot's: there are no vmStructs in it")

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
	var k bpf.HotspotProcess
	if m := gs.agent.objects.Processes; m.Lookup(uint32(p.pid), &k) == nil && k.Serial == g.kernel.Serial {
		m.Delete(uint32(p.pid)) // it may be gone by now, which is as well
	}
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

// count counts reads of targets, by cause of failure.
func (gs *guests) count(err error) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if err == nil {
		gs.reads++
		return
	}
	gs.failures[proc.Cause(err)]++
}

// Guests is how many VMs are attached now.
func (a *Agent) Guests() int {
	a.guests.mu.Lock()
	defer a.guests.mu.Unlock()
	return a.guests.attached
}

func (gs *guests) close() error {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	return gs.probes.Close()
}
