package agent

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/attach"
	"github.com/vmprof-agent/vmprof-agent/agent/library"
	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot"
)

// A config is what a resolver is given.
type config struct {
	Root      proc.Root
	Log       *slog.Logger
	Objects   *bpf.Objects
	Pool      *proc.Pool             // for reads of processes
	Attaching *proc.Pool             // in which probes of code are attached; nil for a resolver that is not started
	Fault     func(s stage, pid int) // called when a stage begins, for tests that make it panic; nil means nothing
}

// targets look into processes: they attach to their VMs, follow what happens to code, and name frames, on workers. All reads of
// a process go through a pool with deadlines. What is found out of a process belongs to the worker that has it.
type targets struct {
	root    proc.Root
	log     *slog.Logger
	objects *bpf.Objects
	pool    *proc.Pool     // for reads
	probes  *attach.Probes // of code
	images  *library.Keeper[symbolize.FileKey, *targetProcess, image]
	files   *symbolize.Files
	kernel  *symbolize.Kernel // nil if kernel symbols cannot be read
	vdso    []byte            // an ELF file, nil if it cannot be read
	names   *names
	began   time.Duration // CLOCK_MONOTONIC
	follow  []follower

	panics failures // while a process was handled
	fault  func(s stage, pid int)
	reads  readCounts // of targets

	mapsBytes  atomic.Int64  // memory of all maps of compiled code
	lookups    atomic.Uint64 // frames that were looked up
	firstNamed atomic.Int64  // ns after began at which the first guest frame had a name; 0 if none has

	mu       sync.Mutex // guards the rest
	serial   uint32     // of the last attachment
	slots    []uint32   // free
	attached int
}

// A follower takes part in what workers do with processes. The worker that has the process calls it.
type follower interface {
	// look is called whenever a worker comes to a process that runs.
	look(p *targetProcess)
	// beforeNames is called before frames are named, also if the process has ended.
	beforeNames(p *targetProcess)
	// leftAlone replaces look and beforeNames while a process is left alone after a panic.
	leftAlone(p *targetProcess)
	// attaching is called before p's VM is read, with the VM's library. It returns notes on what the library lacks.
	attaching(p *targetProcess, m *proc.Mapping, lib openLibrary) (lacks []string, err error)
	// announce is called before the VM is announced to the kernel side under that serial.
	announce(p *targetProcess, l *hotspot.Layout, serial uint32) error
	// attached is called once the VM is attached.
	attached(p *targetProcess, g *guest, m *proc.Mapping)
	// withdraw undoes announce.
	withdraw(p *targetProcess, serial uint32)
	// leave is called when the process has ended.
	leave(p *targetProcess)
}

// A bystander follows nothing: whoever embeds it implements what it needs of follower.
type bystander struct{}

func (bystander) look(*targetProcess)        {}
func (bystander) beforeNames(*targetProcess) {}
func (bystander) leftAlone(*targetProcess)   {}
func (bystander) attaching(*targetProcess, *proc.Mapping, openLibrary) ([]string, error) {
	return nil, nil
}
func (bystander) announce(*targetProcess, *hotspot.Layout, uint32) error { return nil }
func (bystander) attached(*targetProcess, *guest, *proc.Mapping)         {}
func (bystander) withdraw(*targetProcess, uint32)                        {}
func (bystander) leave(*targetProcess)                                   {}

// newTargets makes a resolver. No worker runs before start, and without loadSymbols the kernel's functions have no names.
func newTargets(c config) *targets {
	ts := &targets{
		root: c.Root, log: c.Log, objects: c.Objects, pool: c.Pool, fault: c.Fault,
		files: symbolize.NewFiles(symbolBytes), began: proc.Monotonic(),
	}
	if c.Attaching != nil {
		ts.probes, ts.images = attach.NewProbes(c.Objects), ts.newImages(c.Attaching)
	}
	ts.names = newNames(0, ts.work)
	for slot := uint32(bpf.MaxAttached); slot > 0; slot-- {
		ts.slots = append(ts.slots, slot-1)
	}
	return ts
}

// addFollower has f take part from now on. It must be called before start.
func (ts *targets) addFollower(f follower) { ts.follow = append(ts.follow, f) }

// start has that many workers look into processes.
func (ts *targets) start(workers int) { ts.names.start(workers) }

// submit has a worker come to p soon. It does not block for long, and may be called by whoever drains the ring.
func (ts *targets) submit(p *targetProcess) { ts.names.submit(p) }

// submitLater is submit after d.
func (ts *targets) submitLater(p *targetProcess, d time.Duration) { ts.names.submitLater(p, d) }

// wait returns when none of these processes has work left, or after the deadline.
func (ts *targets) wait(ctx context.Context, of []*targetProcess, deadline time.Duration) {
	ts.names.wait(ctx, of, deadline)
}

// mapsOf are the executable mappings of p, as they are now unless they were read a moment ago. A worker that has p calls it.
func (ts *targets) mapsOf(p *targetProcess) proc.Maps {
	ts.readMaps(p)
	return p.work.maps
}

// findGuest attaches to p's VM if it has one. What is not ready yet is tried again later.
func (ts *targets) findGuest(p *targetProcess) {
	ts.readMaps(p)
	if lib := findLibrary(p.work.maps); lib != nil {
		ts.attachGuest(p, lib)
		return
	}
	// A launcher under another name than java is found by its first compilation, by frames in unknown mappings, or when it is
	// looked at again.
	now, look := proc.Monotonic(), &p.work.look
	switch {
	case p.exited.Load() || !look.due(now):
	case looksLikeJava(p.executable.File, p.comm) && look.failed(now):
		p.work.mapsRead = 0
		ts.names.submitLater(p, look.pauses.Next-now)
	default:
		look.pauses.Next = now + retryInterval
		p.setRetry(look.pauses.Next)
	}
}

// findLibrary returns the code of a VM's library, nil if there is none.
func findLibrary(maps proc.Maps) *proc.Mapping {
	for i := range maps {
		if m := &maps[i]; m.Exec && (hotspot.Runtime{}).Recognise(m.Path) {
			return m
		}
	}
	return nil
}

var errTooManyGuests = fmt.Errorf("more than %d JVMs at once", bpf.MaxAttached)

// reserve gives a slot for a VM's epochs, and the number of this attachment.
func (ts *targets) reserve() (slot, serial uint32, err error) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if len(ts.slots) == 0 {
		return 0, 0, errTooManyGuests
	}
	slot = ts.slots[len(ts.slots)-1]
	ts.slots = ts.slots[:len(ts.slots)-1]
	ts.serial++
	ts.attached++
	return slot, ts.serial, nil
}

func (ts *targets) free(slot uint32) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.slots = append(ts.slots, slot)
	ts.attached--
}

// release frees what is held for a process that has ended. The kernel side removes its own entry, except when the entry was added
// after the process had executed another program.
func (ts *targets) release(p *targetProcess) {
	ts.images.Leave(p)
	for _, f := range ts.follow {
		f.leave(p)
	}
	g := p.work.guest
	if g == nil {
		return
	}
	ts.withdraw(p, g)
	ts.forgetThreads(g)
	p.work.guest, p.work.hopeless = nil, true
	g.mem.Close()
	ts.free(g.kernel.Slot)
	ts.pool.Forget(p.pid)
}

// classEpoch is how many times a VM has unloaded classes, as the kernel side counted.
func (ts *targets) classEpoch(g *guest) uint32 { return ts.classEpochIn(g.kernel.Slot) }

// classEpochIn is classEpoch of the VM in a slot.
func (ts *targets) classEpochIn(slot uint32) uint32 {
	var e bpf.Epochs
	if err := ts.objects.Epochs.Lookup(slot, &e); err != nil {
		return ^uint32(0) // matches no sample: nothing is named by a read that cannot be vouched for
	}
	return e.Classes
}

// classEpochOf is classEpoch of p's VM, for those who do not have p; 0 if p has none.
func (ts *targets) classEpochOf(p *targetProcess) uint32 {
	var k bpf.HotspotProcess
	if err := ts.objects.Processes.Lookup(uint32(p.pid), &k); err != nil {
		return 0
	}
	return ts.classEpochIn(k.Slot)
}

// stops is how many safepoint pauses a VM has begun. While it is in one, the result matches no observation.
func (ts *targets) stops(g *guest) uint32 {
	var e bpf.Epochs
	if err := ts.objects.Epochs.Lookup(g.kernel.Slot, &e); err != nil || e.Stopped != 0 {
		return ^uint32(0) // matches no observation
	}
	return e.Stops
}

// vms is how many VMs are attached now.
func (ts *targets) vms() int {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.attached
}

// stop ends the workers. Nothing is looked into any more.
func (ts *targets) stop() {
	ts.names.close()
}

// close detaches all probes of code. Workers must have been stopped.
func (ts *targets) close() error {
	if ts.images == nil {
		return nil
	}
	ts.images.Close()
	return ts.probes.Close()
}

// resolverStats are what a resolver did since it was made.
type resolverStats struct {
	Lookups      uint64            // frames that were looked up
	Failures     map[string]uint64 // panics by stage, every stage
	Reads        uint64            // of processes, successful ones
	ReadFailures map[string]uint64 // by cause, every cause
	FirstNamed   time.Duration     // until the first frame of a VM had a name; 0 if none has
}

func (ts *targets) stats() resolverStats {
	s := resolverStats{Lookups: ts.lookups.Load(), Failures: ts.panics.all(), FirstNamed: time.Duration(ts.firstNamed.Load())}
	s.Reads, s.ReadFailures = ts.reads.all()
	return s
}

// countRead counts a read of a process, by its error.
func (ts *targets) countRead(err error) { ts.reads.count(err) }
