package guest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/guest/runtimes/bridge"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/library"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/elffile"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A Config is what a Resolver needs. A test that starts no worker may leave out everything.
type Config struct {
	Root      proc.Root
	Runtimes  []bridge.Runtime // the runtimes that are supported: see package runtimes
	Log       *slog.Logger
	Objects   *bpf.Objects           // the kernel side, to which VMs are announced
	Pool      *proc.Pool             // pool for reads of processes
	Attaching *proc.Pool             // the pool in which probes of code are attached; nil if no worker is started
	Began     time.Duration          // when the agent began, CLOCK_MONOTONIC; 0 means now
	Fault     func(s Stage, pid int) // called when a stage begins, for tests that make it panic; nil means nothing
}

// A Resolver attaches to the VMs of processes, follows what happens to their code, and names their
// frames, on workers. What is found out of a process belongs to the worker that has it.
type Resolver struct {
	root     proc.Root
	host     string // name of the machine
	runtimes []bridge.Runtime
	log      *slog.Logger
	objects  *bpf.Objects
	pool     *proc.Pool     // pool for reads of processes
	probes   *attach.Probes // probes of code
	images   *library.Keeper[symbolize.FileKey, *Process, image]
	files    *symbolize.Files
	kernel   atomic.Pointer[symbolize.Kernel] // nil if kernel symbols cannot be read
	loaded   *symbolize.Loaded                // loaded code of kernel
	loads    *attach.LoadedCode               // nil if they cannot be followed
	modules  map[string]uint64                // where those of kernel end
	vdso     []byte                           // an ELF file, nil if it cannot be read
	queue    *queue
	began    time.Duration // CLOCK_MONOTONIC
	follow   []Follower

	panics failures // panics while a process was handled
	fault  func(s Stage, pid int)
	reads  readCounts // counts of reads of targets

	mapsBytes  atomic.Int64  // memory of all maps of compiled code
	lookups    atomic.Uint64 // frames that were looked up
	sources    atomic.Int64  // files that processes keep open for lines
	firstNamed atomic.Int64  // ns after began at which the first frame of a VM had a name; 0 if none has

	mu       sync.Mutex // guards the rest
	serial   uint32     // serial of the last attachment
	slots    []uint32   // free
	attached int
}

// NewResolver makes a resolver. No worker runs before Start, and without UseSymbols the kernel's
// functions have no names.
func NewResolver(c Config) *Resolver {
	rs := &Resolver{
		root: c.Root, host: proc.HostName(), runtimes: c.Runtimes, log: c.Log, objects: c.Objects, pool: c.Pool,
		fault: c.Fault,
		files: symbolize.NewFiles(symbolBytes), began: cmp.Or(c.Began, proc.Monotonic()),
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

// Follow has f take part in what workers do. It must be called before Start.
func (rs *Resolver) Follow(f Follower) { rs.follow = append(rs.follow, f) }

// Start starts that many workers.
func (rs *Resolver) Start(workers int) { rs.queue.start(workers) }

// Submit has a worker come to p soon. It does not block for long, and the drainer may call it.
func (rs *Resolver) Submit(p *Process) { rs.queue.submit(p) }

// SubmitLater is Submit after d.
func (rs *Resolver) SubmitLater(p *Process, d time.Duration) { rs.queue.submitLater(p, d) }

// Wait returns when none of these processes has work left, or after the deadline.
func (rs *Resolver) Wait(ctx context.Context, of []*Process, deadline time.Duration) {
	rs.queue.wait(ctx, of, deadline)
}

// DropIdle drops the symbols of files that no process has needed for a while.
func (rs *Resolver) DropIdle() { rs.files.DropIdle(time.Now().Add(-idleSymbols)) }

// Maps are the executable mappings of p. They are read anew unless that was done a moment ago. The
// worker that has p calls it.
func (rs *Resolver) Maps(p *Process) proc.Maps {
	rs.readMaps(p)
	return p.work.maps
}

// findVM attaches to p's VM if it has one. What is not ready yet is tried again later.
func (rs *Resolver) findVM(p *Process) {
	now, look := proc.Monotonic(), &p.work.look
	due := look.due(now)
	if due || now-p.work.mapsRead > maxMapsInterval || now-p.Noticed < startTime || p.hasLoads() {
		rs.readMaps(p)
	}
	if lib := rs.FindLibrary(p.work.maps); lib != nil {
		rs.attachVM(p, lib)
		return
	}
	// A launcher under another name than java is found by its first compilation, by frames in
	// unknown mappings, or when it is looked at again.
	switch {
	case p.Exited.Load() || !due:
	case p.looksLikeJava() && look.failed(now):
		p.work.mapsRead = 0
		rs.queue.submitLater(p, look.pauses.Next-now)
	default:
		look.pauses.Next = now + retryInterval
		p.SetRetry(look.pauses.Next)
	}
}

// ClassName names a class by the text that the kernel side read in an event: it reads objects of
// one runtime only.
func (rs *Resolver) ClassName(text []byte) string {
	for _, r := range rs.runtimes {
		if namer, ok := r.Runtime.(vmruntime.ClassNamer); ok {
			return namer.ClassName(text)
		}
	}
	return symbol.CleanName(string(text))
}

// FindLibrary returns the mapping of a VM's code, nil if there is none.
func (rs *Resolver) FindLibrary(maps proc.Maps) *proc.Mapping {
	return bridge.FindLibrary(rs.runtimes, maps)
}

var errTooManyVMs = fmt.Errorf("more than %d VMs at once", bpf.MaxAttached)

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

// release frees what is held for a process that has ended. The kernel side removes its own entry,
// except when the entry was added after the process had executed another program.
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
	p.Slot.Store(NoSlot) // Attachment stays: records that are on their way are of this VM
	rs.free(g.Kernel.Slot)
	rs.pool.Forget(p.PID)
}

// ClassEpoch is how many times a VM has unloaded classes, as the kernel side counts it. If that
// cannot be read, the result matches no sample.
func (rs *Resolver) ClassEpoch(g *VM) uint32 { return rs.classEpochIn(g.Kernel.Slot) }

// classEpochIn is classEpoch of the VM in a slot.
func (rs *Resolver) classEpochIn(slot uint32) uint32 {
	var e bpf.Epochs
	if err := rs.objects.Epochs.Lookup(slot, &e); err != nil {
		return ^uint32(0) // matches no sample: nothing is named by a read that cannot be vouched for
	}
	return e.Classes
}

// ClassEpochOf is ClassEpoch of p's VM, for callers other than p's worker; 0 if p has none.
func (rs *Resolver) ClassEpochOf(p *Process) uint32 {
	var k bpf.HotspotProcess
	if err := rs.objects.Processes.Lookup(uint32(p.PID), &k); err != nil {
		return 0
	}
	return rs.classEpochIn(k.Slot)
}

// SafepointPauses is how many safepoint pauses a VM has begun. While it is in one, the result
// matches no observation.
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

// Stop ends the workers. What is queued is dropped.
func (rs *Resolver) Stop() {
	rs.queue.close()
}

// Close detaches all probes of code. Stop must have returned.
func (rs *Resolver) Close() error {
	var err error
	if rs.loads != nil {
		err = rs.loads.Close()
	}
	if rs.images == nil {
		return err
	}
	rs.images.Close()
	return errors.Join(err, rs.probes.Close())
}

// Stats count what a Resolver did since it was made.
type Stats struct {
	Lookups      uint64            // frames that were looked up
	Failures     map[string]uint64 // panics by stage, every stage
	Reads        uint64            // successful reads of processes
	ReadFailures map[string]uint64 // by cause, every cause
	FirstNamed   time.Duration     // until the first frame of a VM had a name; 0 if none has
}

// Stats counts what was done so far.
func (rs *Resolver) Stats() Stats {
	s := Stats{Lookups: rs.lookups.Load(), Failures: rs.panics.all(), FirstNamed: time.Duration(rs.firstNamed.Load())}
	s.Reads, s.ReadFailures = rs.reads.all()
	return s
}

// CountRead counts a read of a process that a Follower made, by its error.
func (rs *Resolver) CountRead(err error) { rs.reads.count(err) }

// readCounts count reads of targets, failed ones by cause. The zero value is ready for use.
type readCounts struct {
	mu       sync.Mutex
	reads    uint64
	failures map[string]uint64
}

// count counts a read. That there is nothing at an address any more is a successful read.
func (c *readCounts) count(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil, errors.Is(err, vmruntime.ErrStale), errors.Is(err, vmruntime.ErrUnknown):
		c.reads++
		return
	case errors.Is(err, vmruntime.ErrMalformed), errors.Is(err, elffile.ErrMalformed),
		errors.Is(err, elffile.ErrNotELF), errors.Is(err, elffile.ErrUnsupported):
		err = proc.ErrMalformed
	case errors.Is(err, elffile.ErrTooLarge):
		err = proc.ErrTooLarge
	}
	if c.failures == nil {
		c.failures = map[string]uint64{}
	}
	c.failures[proc.Cause(err)]++
}

// refusal counts a file that was refused, if that is what err says.
func (c *readCounts) refusal(err error) {
	if proc.Refused(err) {
		c.count(err)
	}
}

// all returns the number of successful reads and of failures, the latter with every cause.
func (c *readCounts) all() (reads uint64, failures map[string]uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	failures = map[string]uint64{}
	for _, cause := range proc.Causes() {
		failures[cause] = 0
	}
	maps.Copy(failures, c.failures)
	return c.reads, failures
}
