package agent

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"
	"unique"

	"github.com/cilium/ebpf"

	"github.com/vmprof-agent/vmprof-agent/agent/layout"
	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/retry"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot"
)

// A guest is an attached VM: the kernel side can walk its stacks, and vm names what is found there.
type guest struct {
	vm      *hotspot.Process
	mem     *proc.Memory
	kernel  *bpf.HotspotProcess // what was passed to the kernel side
	refresh retry.Backoff       // until all kinds of code have been seen
	mapping unique.Handle[symbolize.Mapping]
	index   codeIndex
	pid     int
	threads map[uint32]struct{} // ids of those that were announced to the kernel side, if it finds threads by them
}

// attachGuest attaches to the VM whose library p maps, or sees to it that this is tried again.
func (ts *targets) attachGuest(p *targetProcess, lib *proc.Mapping) {
	pace := &p.work.attach
	if !pace.due(proc.Monotonic()) {
		return
	}
	p.retry.Store(0)
	p.misses(proc.Monotonic(), errAttaching)
	g, err := ts.attach(p, lib)
	now := proc.Monotonic()
	p.misses(now, err)
	switch {
	case err == nil:
		p.work.guest = g
		if g.kernel.Flags&bpf.HotspotThreads != 0 {
			ts.readThreads(p, g)
		}
		for _, f := range ts.follow {
			f.attached(p, g, lib)
		}
		return
	case p.exited.Load():
		return
	case errors.Is(err, errArchitecture):
		p.work.hopeless = true
	case pace.failed(now):
		ts.names.submitLater(p, pace.pauses.Next-now)
	default:
		p.setRetry(pace.pauses.Next)
	}
	if errors.Is(err, proc.ErrGone) || !pace.report(now, !errors.As(err, new(libraryError))) {
		return
	}
	ts.log.Warn("cannot attach to JVM; its native frames are still shown", "pid", p.pid, "err", err, "retrying", !p.work.hopeless)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.runtime = "hotspot"
	p.notes = append(p.notes, fmt.Sprintf("Java frames of process %d are missing: %v", p.pid, err))
}

// missing is since when, until when and why the stacks of a process have no Java frames, although it has a VM. Guarded by
// process.mu.
type missing struct {
	since, until time.Duration // CLOCK_MONOTONIC; until is 0 if they still have none
	why          error         // the last failure; nil if there was no attempt to attach
}

// errAttaching is why frames are missing before the first attempt has ended.
var errAttaching = errors.New("its JVM is being attached")

// usualDelay is how long it may take to attach to a VM, without a note.
const usualDelay = time.Second

// misses notes the outcome of an attempt to attach, or errAttaching when it begins.
func (p *targetProcess) misses(now time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := &p.missing
	switch {
	case m.why == nil:
		m.since, m.why = now, err
	case err == nil:
		m.until = now
	case err != errAttaching:
		m.why = err
	}
}

// missingFrames is the note for a profile that began at that time of CLOCK_MONOTONIC; "" if all frames are there, or it is among
// the notes.
func (p *targetProcess) missingFrames(began time.Duration) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := &p.missing
	note := fmt.Sprintf("Java frames of process %d are missing", p.pid)
	switch {
	case m.why == nil, slices.ContainsFunc(p.notes, func(n string) bool { return strings.HasPrefix(n, note) }):
		return ""
	case m.until == 0:
		return fmt.Sprintf("%s: %v", note, m.why)
	case m.until <= began || m.until-m.since < usualDelay:
		return ""
	}
	return fmt.Sprintf("%s until %.1f s after its JVM was found: %v", note, (m.until - m.since).Seconds(), m.why)
}

// A libraryError is what is wrong with a library, whichever process maps it. It does not pass while the VM starts.
type libraryError struct{ error }

func (e libraryError) Unwrap() error { return e.error }

// errArchitecture: the walker's rules for HotSpot frames are those of x86-64.
var errArchitecture = errors.New("stacks of HotSpot are walked on x86-64 only, so far")

// attach tells the kernel side how to walk p's stacks, and reads the maps that name what is found there.
func (ts *targets) attach(p *targetProcess, lib *proc.Mapping) (*guest, error) {
	if runtime.GOARCH != "amd64" {
		return nil, libraryError{errArchitecture}
	}
	opened, err := ts.open(p, lib)
	if err != nil {
		return nil, err
	}
	defer opened.file.Close()
	im, err := ts.image(p, lib, opened)
	if err != nil {
		return nil, err
	}
	if im.err != nil {
		return nil, libraryError{im.err}
	}
	var lacks []string
	for _, f := range ts.follow {
		some, err := f.attaching(p, lib, opened)
		if err != nil {
			return nil, err
		}
		lacks = append(lacks, some...)
	}
	bias, err := im.segments.Bias(lib.Start, lib.Offset)
	if err != nil {
		return nil, err
	}
	mem, err := proc.OpenMemory(ts.root, p.identity(), ts.pool)
	if err != nil {
		return nil, fmt.Errorf("open memory: %w", err)
	}
	slot, serial, err := ts.reserve()
	if err != nil {
		mem.Close()
		return nil, err
	}
	done := false
	defer func() { // whichever way it ends
		if !done {
			p.attachment.Store(0)
			mem.Close()
			ts.free(slot)
		}
	}()
	target := vmruntime.Target{Memory: mem, Bias: bias}
	if im.probes == nil {
		target.Epoch = func() uint32 { return ts.classEpochIn(slot) }
	}
	target.Seen = func(method uint64) (vmruntime.SeenMethod, bool) {
		m, ok := ts.objects.SeenMethod(serial, method)
		return vmruntime.SeenMethod{Body: m.ConstMethod, Shape: m.Shape, Since: m.Since}, ok
	}
	attached, err := im.img.Attach(target)
	if err != nil {
		return nil, err
	}
	vm := attached.(*hotspot.Process)
	k, err := layout.Process(vm.Layout())
	if err != nil {
		return nil, err
	}
	k.StartTicks, k.Serial, k.Slot = p.identity().Ticks(), serial, slot
	if im.probes == nil {
		k.Flags |= bpf.HotspotUnloadEvents
	}
	p.slot.Store(slot)
	p.attachment.Store(serial) // first: samples may tell of it at once
	for _, f := range ts.follow {
		if err := f.announce(p, vm.Layout(), serial); err != nil {
			return nil, err
		}
	}
	if err := ts.announce(p, k, ebpf.UpdateAny); err != nil {
		return nil, err
	}
	g := &guest{vm: vm, mem: mem, pid: p.pid, kernel: k, refresh: retry.Backoff{First: 100 * time.Millisecond}, mapping: unique.Make(symbolize.Mapping{
		File: "[jit:HotSpot]", Start: k.CodeLow, Limit: k.CodeHigh,
	})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.runtime, p.vm = "hotspot", vm.Describe()
	p.notes = slices.Clone(vm.Notes()) // what was missing until now is not any more
	if im.probes != nil {
		p.notes = append(p.notes, fmt.Sprintf("code of process %d is not followed live: %v", p.pid, im.probes))
	}
	for _, lack := range lacks {
		p.notes = append(p.notes, fmt.Sprintf("process %d: %s", p.pid, lack))
	}
	ts.log.Debug("attached", "pid", p.pid, "vm", p.vm)
	done = true
	return g, nil
}

// announce tells the kernel side of p's VM, unless p is gone: then its pid may be another process's, whose VM was
// announced already.
func (ts *targets) announce(p *targetProcess, k *bpf.HotspotProcess, how ebpf.MapUpdateFlags) error {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if p.exited.Load() {
		return fmt.Errorf("announce VM to the kernel side: %w", proc.ErrGone)
	}
	if err := ts.objects.Processes.Update(uint32(p.pid), k, how); err != nil {
		return fmt.Errorf("announce VM to the kernel side: %w", err)
	}
	return nil
}

// refresh tells the kernel side of kinds of code that the VM had not generated when it was attached.
func (ts *targets) refresh(p *targetProcess, g *guest) {
	if len(g.vm.Layout().Pending) == 0 || !g.refresh.Due(proc.Monotonic()) {
		return
	}
	changed, err := g.vm.Refresh()
	ts.reads.count(err)
	if err == nil && changed {
		k, err := layout.Process(g.vm.Layout())
		if err != nil {
			return
		}
		k.StartTicks, k.Serial, k.Slot, k.Flags = g.kernel.StartTicks, g.kernel.Serial, g.kernel.Slot, k.Flags|g.kernel.Flags
		if ts.announce(p, k, ebpf.UpdateExist) == nil {
			g.kernel = k
		}
	}
	if len(g.vm.Layout().Pending) > 0 {
		ts.names.submitLater(p, g.refresh.Next-proc.Monotonic())
	}
}

// withdraw has the kernel side forget p's VM, but not one that has the pid now.
func (ts *targets) withdraw(p *targetProcess, g *guest) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	var k bpf.HotspotProcess
	if m := ts.objects.Processes; m.Lookup(uint32(p.pid), &k) == nil && k.Serial == g.kernel.Serial {
		m.Delete(uint32(p.pid)) // it may be gone by now, which is as well
	}
	for _, f := range ts.follow {
		f.withdraw(p, g.kernel.Serial)
	}
}

// codeLow is where the VM's code cache begins.
func (g *guest) codeLow() uint64 { return g.kernel.CodeLow }

// site is where a guest frame is, for the VM's reader.
func (g *guest) site(f bpf.Frame, exact bool, epoch uint32) vmruntime.Site {
	s := vmruntime.Site{Exact: exact, Epoch: epoch}
	switch f.Kind() {
	case bpf.FrameJIT:
		s.Kind, s.PC, s.Version = vmruntime.Compiled, g.kernel.CodeLow+uint64(f.CodeOffset()), f.CompileID()
	case bpf.FrameStub:
		s.Kind, s.PC = vmruntime.Stub, g.kernel.CodeLow+uint64(f.CodeOffset())
	case bpf.FrameInterpreted:
		s.Kind, s.Method, s.BCI = vmruntime.Interpreted, f.Method(), f.BCI()
	}
	return s
}
