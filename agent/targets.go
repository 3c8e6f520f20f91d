package agent

import (
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
	hints   []string          // what every profile says of this agent's limits
	names   *names
	began   time.Duration // CLOCK_MONOTONIC
	follow  []follower

	panics failures               // while a process was handled
	fault  func(s stage, pid int) // of tests: called when a stage begins
	reads  readCounts             // of targets

	nameCount  atomic.Int64  // named frames that are kept
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

// newTargets attaches probes in the pool attaching. No worker runs before start.
func newTargets(root proc.Root, log *slog.Logger, objects *bpf.Objects, attaching *proc.Pool) *targets {
	ts := &targets{
		root: root, log: log, objects: objects, pool: proc.NewPool(proc.PoolOptions{}), probes: attach.NewProbes(objects), began: proc.Monotonic(),
	}
	ts.images = ts.newImages(attaching)
	for slot := uint32(bpf.MaxAttached); slot > 0; slot-- {
		ts.slots = append(ts.slots, slot-1)
	}
	ts.loadSymbols()
	return ts
}

// start has workers look into processes.
func (ts *targets) start() { ts.names = newNames(namingWorkers, ts.work) }

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
		p.retry.Store(int64(look.pauses.Next))
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

// classEpoch is how many times the VM in slot has unloaded classes, as the kernel side counted.
func (ts *targets) classEpoch(slot uint32) uint32 {
	var e bpf.Epochs
	if err := ts.objects.Epochs.Lookup(slot, &e); err != nil {
		return ^uint32(0) // matches no sample: nothing is named by a read that cannot be vouched for
	}
	return e.Classes
}

// stops is how often the VM in slot has stopped its Java threads.
func (ts *targets) stops(slot uint32) uint32 {
	var e bpf.Epochs
	if err := ts.objects.Epochs.Lookup(slot, &e); err != nil || e.Stopped != 0 {
		return ^uint32(0) // matches no observation
	}
	return e.Stops
}

// Guests is how many VMs are attached now.
func (ts *targets) Guests() int {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.attached
}

// stop ends the workers. Nothing is looked into any more.
func (ts *targets) stop() {
	if ts.names != nil {
		ts.names.close()
	}
}

// close detaches all probes of code. Workers must have been stopped.
func (ts *targets) close() error {
	ts.images.Close()
	return ts.probes.Close()
}
