package target

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

// A Config is what a resolver is given.
type Config struct {
	Root      proc.Root
	Log       *slog.Logger
	Objects   *bpf.Objects
	Pool      *proc.Pool             // for reads of processes
	Attaching *proc.Pool             // in which probes of code are attached; nil for a resolver that is not started
	Fault     func(s Stage, pid int) // called when a stage begins, for tests that make it panic; nil means nothing
}

// Resolver look into processes: they attach to their VMs, follow what happens to code, and name frames, on workers. All reads of
// a process go through a pool with deadlines. What is found out of a process belongs to the worker that has it.
type Resolver struct {
	root    proc.Root
	log     *slog.Logger
	objects *bpf.Objects
	pool    *proc.Pool     // for reads
	probes  *attach.Probes // of code
	images  *library.Keeper[symbolize.FileKey, *Process, image]
	files   *symbolize.Files
	kernel  *symbolize.Kernel // nil if kernel symbols cannot be read
	vdso    []byte            // an ELF file, nil if it cannot be read
	queue   *queue
	began   time.Duration // CLOCK_MONOTONIC
	follow  []Follower

	panics failures // while a process was handled
	fault  func(s Stage, pid int)
	reads  readCounts // of targets

	mapsBytes  atomic.Int64  // memory of all maps of compiled code
	lookups    atomic.Uint64 // frames that were looked up
	firstNamed atomic.Int64  // ns after began at which the first guest frame had a name; 0 if none has

	mu       sync.Mutex // guards the rest
	serial   uint32     // of the last attachment
	slots    []uint32   // free
	attached int
}

// A Follower takes part in what workers do with processes. The worker that has the process calls it.
type Follower interface {
	// Look is called whenever a worker comes to a process that runs.
	Look(p *Process)
	// BeforeNames is called before frames are named, also if the process has ended.
	BeforeNames(p *Process)
	// LeftAlone replaces look and beforeNames while a process is left alone after a panic.
	LeftAlone(p *Process)
	// Attaching is called before p's VM is read, with the VM's library. It returns notes on what the library lacks.
	Attaching(p *Process, m *proc.Mapping, lib MappedFile) (lacks []string, err error)
	// Announce is called before the VM is announced to the kernel side under that serial.
	Announce(p *Process, l *hotspot.Layout, serial uint32) error
	// Attached is called once the VM is attached.
	Attached(p *Process, g *VM, m *proc.Mapping)
	// Withdraw undoes announce.
	Withdraw(p *Process, serial uint32)
	// Leave is called when the process has ended.
	Leave(p *Process)
}

// A Bystander follows nothing: whoever embeds it implements what it needs of follower.
type Bystander struct{}

func (Bystander) Look(*Process)        {}
func (Bystander) BeforeNames(*Process) {}
func (Bystander) LeftAlone(*Process)   {}
func (Bystander) Attaching(*Process, *proc.Mapping, MappedFile) ([]string, error) {
	return nil, nil
}
func (Bystander) Announce(*Process, *hotspot.Layout, uint32) error { return nil }
func (Bystander) Attached(*Process, *VM, *proc.Mapping)            {}
func (Bystander) Withdraw(*Process, uint32)                        {}
func (Bystander) Leave(*Process)                                   {}

// NewResolver makes a resolver. No worker runs before start, and without loadSymbols the kernel's functions have no names.
func NewResolver(c Config) *Resolver {
	rs := &Resolver{
		root: c.Root, log: c.Log, objects: c.Objects, pool: c.Pool, fault: c.Fault,
		files: symbolize.NewFiles(symbolBytes), began: proc.Monotonic(),
	}
	if c.Attaching != nil {
		rs.probes, rs.images = attach.NewProbes(c.Objects), rs.newImages(c.Attaching)
	}
	rs.queue = newQueue(0, rs.work)
	for slot := uint32(bpf.MaxAttached); slot > 0; slot-- {
		rs.slots = append(rs.slots, slot-1)
	}
	return rs
}

// Follow has f take part from now on. It must be called before start.
func (rs *Resolver) Follow(f Follower) { rs.follow = append(rs.follow, f) }

// Start has that many workers look into processes.
func (rs *Resolver) Start(workers int) { rs.queue.start(workers) }

// Submit has a worker come to p soon. It does not block for long, and may be called by whoever drains the ring.
func (rs *Resolver) Submit(p *Process) { rs.queue.submit(p) }

// SubmitLater is submit after d.
func (rs *Resolver) SubmitLater(p *Process, d time.Duration) { rs.queue.submitLater(p, d) }

// Wait returns when none of these processes has work left, or after the deadline.
func (rs *Resolver) Wait(ctx context.Context, of []*Process, deadline time.Duration) {
	rs.queue.wait(ctx, of, deadline)
}

// Maps are the executable mappings of p, as they are now unless they were read a moment ago. A worker that has p calls it.
func (rs *Resolver) Maps(p *Process) proc.Maps {
	rs.readMaps(p)
	return p.work.maps
}

// findVM attaches to p's VM if it has one. What is not ready yet is tried again later.
func (rs *Resolver) findVM(p *Process) {
	rs.readMaps(p)
	if lib := FindLibrary(p.work.maps); lib != nil {
		rs.attachVM(p, lib)
		return
	}
	// A launcher under another name than java is found by its first compilation, by frames in unknown mappings, or when it is
	// looked at again.
	now, look := proc.Monotonic(), &p.work.look
	switch {
	case p.Exited.Load() || !look.due(now):
	case looksLikeJava(p.executable.File, p.comm) && look.failed(now):
		p.work.mapsRead = 0
		rs.queue.submitLater(p, look.pauses.Next-now)
	default:
		look.pauses.Next = now + retryInterval
		p.SetRetry(look.pauses.Next)
	}
}

// FindLibrary returns the code of a VM's library, nil if there is none.
func FindLibrary(maps proc.Maps) *proc.Mapping {
	for i := range maps {
		if m := &maps[i]; m.Exec && (hotspot.Runtime{}).Recognise(m.Path) {
			return m
		}
	}
	return nil
}

var errTooManyVMs = fmt.Errorf("more than %d JVMs at once", bpf.MaxAttached)

// reserve gives a slot for a VM's epochs, and the number of this attachment.
func (rs *Resolver) reserve() (slot, serial uint32, err error) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if len(rs.slots) == 0 {
		return 0, 0, errTooManyVMs
	}
	slot = rs.slots[len(rs.slots)-1]
	rs.slots = rs.slots[:len(rs.slots)-1]
	rs.serial++
	rs.attached++
	return slot, rs.serial, nil
}

func (rs *Resolver) free(slot uint32) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.slots = append(rs.slots, slot)
	rs.attached--
}

// release frees what is held for a process that has ended. The kernel side removes its own entry, except when the entry was added
// after the process had executed another program.
func (rs *Resolver) release(p *Process) {
	rs.images.Leave(p)
	for _, f := range rs.follow {
		f.Leave(p)
	}
	g := p.work.vm
	if g == nil {
		return
	}
	rs.withdraw(p, g)
	rs.forgetThreads(g)
	p.work.vm, p.work.hopeless = nil, true
	g.Memory.Close()
	rs.free(g.Kernel.Slot)
	rs.pool.Forget(p.PID)
}

// ClassEpoch is how many times a VM has unloaded classes, as the kernel side counted.
func (rs *Resolver) ClassEpoch(g *VM) uint32 { return rs.classEpochIn(g.Kernel.Slot) }

// classEpochIn is classEpoch of the VM in a slot.
func (rs *Resolver) classEpochIn(slot uint32) uint32 {
	var e bpf.Epochs
	if err := rs.objects.Epochs.Lookup(slot, &e); err != nil {
		return ^uint32(0) // matches no sample: nothing is named by a read that cannot be vouched for
	}
	return e.Classes
}

// ClassEpochOf is classEpoch of p's VM, for those who do not have p; 0 if p has none.
func (rs *Resolver) ClassEpochOf(p *Process) uint32 {
	var k bpf.HotspotProcess
	if err := rs.objects.Processes.Lookup(uint32(p.PID), &k); err != nil {
		return 0
	}
	return rs.classEpochIn(k.Slot)
}

// SafepointPauses is how many safepoint pauses a VM has begun. While it is in one, the result matches no observation.
func (rs *Resolver) SafepointPauses(g *VM) uint32 {
	var e bpf.Epochs
	if err := rs.objects.Epochs.Lookup(g.Kernel.Slot, &e); err != nil || e.Stopped != 0 {
		return ^uint32(0) // matches no observation
	}
	return e.Stops
}

// VMs is how many VMs are attached now.
func (rs *Resolver) VMs() int {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.attached
}

// Stop ends the workers. Nothing is looked into any more.
func (rs *Resolver) Stop() {
	rs.queue.close()
}

// Close detaches all probes of code. Workers must have been stopped.
func (rs *Resolver) Close() error {
	if rs.images == nil {
		return nil
	}
	rs.images.Close()
	return rs.probes.Close()
}

// Stats are what a resolver did since it was made.
type Stats struct {
	Lookups      uint64            // frames that were looked up
	Failures     map[string]uint64 // panics by stage, every stage
	Reads        uint64            // of processes, successful ones
	ReadFailures map[string]uint64 // by cause, every cause
	FirstNamed   time.Duration     // until the first frame of a VM had a name; 0 if none has
}

func (rs *Resolver) Stats() Stats {
	s := Stats{Lookups: rs.lookups.Load(), Failures: rs.panics.all(), FirstNamed: time.Duration(rs.firstNamed.Load())}
	s.Reads, s.ReadFailures = rs.reads.all()
	return s
}

// CountRead counts a read of a process, by its error.
func (rs *Resolver) CountRead(err error) { rs.reads.count(err) }
