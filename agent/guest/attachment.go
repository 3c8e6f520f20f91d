package guest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unique"

	"github.com/cilium/ebpf"

	"github.com/vmprof-agent/vmprof-agent/agent/guest/runtimes/bridge"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/host/retry"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// attachVM attaches to the VM whose library p maps, or sees to it that this is tried again.
func (rs *Resolver) attachVM(p *Process, lib *proc.Mapping) {
	pace := &p.work.attach
	if !pace.due(proc.Monotonic()) {
		return
	}
	p.retry.Store(0)
	p.AttachResult(proc.Monotonic(), errAttaching)
	vm, recognised := bridge.Recognise(rs.runtimes, lib.Path)
	if recognised {
		p.lacks(vm.Language())
	}
	g, err := rs.attach(p, lib)
	now := proc.Monotonic()
	p.AttachResult(now, err)
	switch {
	case err == nil:
		p.work.vm = g
		if g.Kernel.Flags&bpf.HotspotThreads != 0 {
			rs.readThreads(p, g)
		}
		if !g.runtime.StacksOnly {
			for _, f := range rs.follow {
				f.Attached(p, g, lib)
			}
		}
		return
	case p.Exited.Load():
		return
	case errors.Is(err, bridge.ErrArchitecture):
		p.work.hopeless = true
	case pace.failed(now):
		rs.queue.submitLater(p, pace.pauses.Next-now)
	default:
		p.SetRetry(pace.pauses.Next)
	}
	if errors.Is(err, proc.ErrGone) || !pace.report(now, !errors.As(err, new(libraryError))) {
		return
	}
	title, language := "JVM", "Java"
	if recognised {
		title, language = vm.Title(), vm.Language()
	}
	rs.log.Warn("cannot attach to VM; its native frames are still shown", "vm", title, "pid", p.PID, "err", err,
		"retrying", !p.work.hopeless)
	p.mu.Lock()
	defer p.mu.Unlock()
	if recognised {
		p.runtime = vm.Name()
	}
	p.notes = append(p.notes, fmt.Sprintf("%s: %v", missingNote(language, p.PID), err))
}

// missingNote begins the note of frames that a process lacks.
func missingNote(language string, pid int) string {
	return fmt.Sprintf("%s frames of process %d are missing", language, pid)
}

// missing is since when, until when and why the stacks of a process have no Java frames, although
// it has a VM. Process.mu guards it.
type missing struct {
	since, until time.Duration // CLOCK_MONOTONIC; until is 0 if they still have none
	why          error         // the last failure; nil if there was no attempt to attach
	language     string        // "Java", "Python"; "" until a VM was recognised
}

// errAttaching is why frames are missing before the first attempt has ended.
var errAttaching = errors.New("the agent is still attaching to its JVM")

// lacks notes of which language frames are missing, while its VM is not attached.
func (p *Process) lacks(language string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.missing.language = language
}

// usualDelay is how long it may take to attach to a VM, without a note.
const usualDelay = time.Second

// AttachResult records the outcome of an attempt to attach that ended at that time of
// CLOCK_MONOTONIC, or errAttaching when one begins.
func (p *Process) AttachResult(now time.Duration, err error) {
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

// Attaching reports whether the agent tries to attach to p's VM, and has not succeeded yet.
func (p *Process) Attaching() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.missing.why != nil && p.missing.until == 0 && p.Attachment.Load() == 0 && !p.Exited.Load()
}

// MissingFrames is the note of missing Java frames for a profile that began at that time of
// CLOCK_MONOTONIC; "" if none are missing, or if it is among the process's notes.
func (p *Process) MissingFrames(began time.Duration) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := &p.missing
	note := missingNote(cmp.Or(m.language, "Java"), p.PID)
	switch {
	case m.why == nil, slices.ContainsFunc(p.notes, func(n string) bool { return strings.HasPrefix(n, note) }):
		return ""
	case m.until == 0 && m.why == errAttaching:
		return fmt.Sprintf("%s: the agent is still attaching to its %s", note, m.vm())
	case m.until == 0:
		return fmt.Sprintf("%s: %v", note, m.why)
	case m.until <= began || m.until-m.since < usualDelay:
		return ""
	}
	return fmt.Sprintf("%s until %.1f s after its %s was found: %v", note, (m.until - m.since).Seconds(), m.vm(), m.why)
}

// vm is what people call the VM.
func (m *missing) vm() string {
	if cmp.Or(m.language, "Java") == "Java" {
		return "JVM"
	}
	return "interpreter"
}

// A libraryError is what is wrong with a library, whichever process maps it. It does not pass while
// the VM starts.
type libraryError struct{ error }

func (e libraryError) Unwrap() error { return e.error }

// attach announces to the kernel side how to walk p's stacks, and reads the maps that name what is
// found there.
func (rs *Resolver) attach(p *Process, lib *proc.Mapping) (*VM, error) {
	if vm, ok := bridge.Recognise(rs.runtimes, lib.Path); ok {
		if err := vm.Kernel.Usable(); err != nil {
			return nil, libraryError{err}
		}
	}
	opened, err := rs.Open(p, lib)
	if err != nil {
		return nil, err
	}
	defer opened.File.Close()
	im, err := rs.image(p, lib, opened)
	if err != nil {
		return nil, err
	}
	if errors.Is(im.err, vmruntime.ErrStarting) {
		return nil, im.err
	}
	if im.err != nil {
		return nil, libraryError{im.err}
	}
	var lacks []string
	follow := rs.follow
	if im.runtime.StacksOnly {
		follow = nil
	}
	for _, f := range follow {
		some, err := f.Attaching(p, lib, opened)
		if err != nil {
			return nil, err
		}
		lacks = append(lacks, some...)
	}
	bias, err := im.segments.Bias(lib.Start, lib.Offset)
	if err != nil {
		return nil, err
	}
	mem, err := proc.OpenMemory(rs.root, p.Identity(), rs.pool)
	if err != nil {
		return nil, fmt.Errorf("open memory: %w", err)
	}
	slot, serial, err := rs.reserve()
	if err != nil {
		mem.Close()
		return nil, err
	}
	done := false
	defer func() { // whichever way it ends
		if !done {
			p.Attachment.Store(0)
			mem.Close()
			rs.free(slot)
		}
	}()
	direct := proc.NewDirect(mem, func() { rs.lost(p) })
	target := vmruntime.Target{Memory: direct, Bias: bias}
	if im.probes == nil {
		target.Epoch = func() uint32 { return rs.classEpochIn(slot) }
	}
	target.Seen = func(method uint64) (vmruntime.SeenMethod, bool) {
		m, ok := rs.objects.SeenMethod(serial, method)
		return vmruntime.SeenMethod{Body: m.ConstMethod, Shape: m.Shape, Name: m.Name, Since: m.Since}, ok
	}
	direct.Set(true)
	vm, err := im.img.Attach(target)
	direct.Set(false)
	if err != nil {
		return nil, err
	}
	records, err := im.runtime.Kernel.VM(vm)
	if err != nil {
		return nil, err
	}
	k, err := records.Record()
	if err != nil {
		return nil, err
	}
	k.StartTicks, k.Serial, k.Slot = p.Identity().Ticks(), serial, slot
	if im.probes == nil && !im.runtime.StacksOnly {
		k.Flags |= bpf.HotspotUnloadEvents
	}
	p.stacksOnly.Store(im.runtime.StacksOnly)
	p.Slot.Store(slot)
	p.Attachment.Store(serial) // first: samples may refer to it at once
	heap := records.Heap()
	for _, f := range follow {
		if err := f.Announce(p, heap, serial); err != nil {
			return nil, err
		}
	}
	if err := rs.announce(p, k, ebpf.UpdateAny); err != nil {
		return nil, err
	}
	g := &VM{
		Guest: vm, Memory: mem, direct: direct, Kernel: k, runtime: im.runtime, records: records, pid: p.PID,
		refresh:     retry.Backoff{First: 100 * time.Millisecond},
		mapping:     unique.Make(symbol.Mapping{File: jitFile(im.runtime), Start: k.CodeLow, Limit: k.CodeHigh}),
		interpreter: unique.Make(symbol.Mapping{File: interpreterPrefix + im.runtime.Title() + "]"}),
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.runtime, p.vm = im.runtime.Name(), vm.Describe()
	p.notes = slices.Clone(vm.Notes()) // what was missing until now is not any more
	if im.probes != nil {
		p.notes = append(p.notes, fmt.Sprintf("compilations of process %d are not followed live, so methods compiled "+
			"from now on may have no names: %v", p.PID, im.probes))
	}
	for _, lack := range lacks {
		p.notes = append(p.notes, fmt.Sprintf("process %d: %s", p.PID, lack))
	}
	rs.log.Debug("attached", "pid", p.PID, "vm", p.vm)
	done = true
	return g, nil
}

// announce announces p's VM to the kernel side, unless p is gone: then its pid may be another
// process's, whose VM was announced already.
func (rs *Resolver) announce(p *Process, k *bpf.HotspotProcess, how ebpf.MapUpdateFlags) error {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if p.Exited.Load() {
		return fmt.Errorf("register the VM in the kernel: %w", proc.ErrGone)
	}
	if err := rs.objects.Processes.Update(uint32(p.PID), k, how); err != nil {
		return fmt.Errorf("register the VM in the kernel: %w", err)
	}
	return nil
}

// refresh announces to the kernel side kinds of code that the VM had not generated when it was
// attached.
func (rs *Resolver) refresh(p *Process, g *VM) {
	if !g.records.Pending() || !g.refresh.Due(proc.Monotonic()) {
		return
	}
	changed, err := g.records.Refresh()
	rs.reads.count(err)
	if err == nil && changed {
		k, err := g.records.Record()
		if err != nil {
			return
		}
		k.StartTicks, k.Serial, k.Slot, k.Flags = g.Kernel.StartTicks, g.Kernel.Serial, g.Kernel.Slot,
			k.Flags|g.Kernel.Flags
		if rs.announce(p, k, ebpf.UpdateExist) == nil {
			g.Kernel = k
		}
	}
	if g.records.Pending() {
		rs.queue.submitLater(p, g.refresh.Next-proc.Monotonic())
	}
}

// withdraw has the kernel side forget p's VM, but not one that has the pid now.
func (rs *Resolver) withdraw(p *Process, g *VM) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	var k bpf.HotspotProcess
	if m := rs.objects.Processes; m.Lookup(uint32(p.PID), &k) == nil && k.Serial == g.Kernel.Serial {
		m.Delete(uint32(p.PID)) // it may be gone by now, which is as well
	}
	for _, f := range rs.follow {
		f.Withdraw(p, g.Kernel.Serial)
	}
}

// An attachPace says when a process that has no VM yet is looked at again, or a VM that could not
// be attached is tried again. No failure is final: while its library is loaded, what is read of it
// may be anything. For startTime after the first attempt the pauses grow to a second, and the agent
// comes back by itself. Later the process is tried again when it is sampled, once in retryInterval.
type attachPace struct {
	pauses   retry.Backoff
	begun    time.Duration // CLOCK_MONOTONIC: of the first attempt, 0 before it
	reported bool          // the log says that it cannot be attached yet
}

const (
	startTime     = 30 * time.Second // the longest that a VM takes to start
	retryInterval = time.Minute
	patience      = 10 * time.Second // time after which the log says that a VM cannot be attached yet
)

func newAttachPace() attachPace {
	return attachPace{pauses: retry.Backoff{First: 5 * time.Millisecond, Longest: time.Second}}
}

// due reports whether an attempt may be made now.
func (a *attachPace) due(now time.Duration) bool {
	if a.begun == 0 {
		a.begun = now
	}
	return a.pauses.Due(now)
}

// failed puts off the next attempt. While the VM may be starting, starting is true: then somebody
// must see to it that there is one at a.pauses.Next.
func (a *attachPace) failed(now time.Duration) (starting bool) {
	if now-a.begun < startTime {
		return true
	}
	a.pauses.Next = now + retryInterval
	return false
}

// report reports, once, whether a failure is to be logged: one that will not pass at once, others
// after a while.
func (a *attachPace) report(now time.Duration, passes bool) bool {
	if a.reported || passes && now-a.begun < patience {
		return false
	}
	a.reported = true
	return true
}
