package guest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A Process is one process from its exec to its exit. Its methods may be called from any goroutine,
// unless they say that only the worker that has the process calls them.
type Process struct {
	PID   int
	Ticks uint64 // start, 10 ms of CLOCK_BOOTTIME
	// Noticed is when the agent learned of it, CLOCK_MONOTONIC: soon after its exec, unless it was
	// there before the agent.
	Noticed time.Duration

	Exited     atomic.Bool   // no worker reads it any more
	replaced   atomic.Int64  // when it executed another program, ns of CLOCK_MONOTONIC; 0 if it did not
	Attachment atomic.Uint32 // the serial under which the kernel side knows its VM, 0 if none
	// Slot is the slot of the VM on the kernel side; valid once Attachment is, NoSlot once it was
	// freed.
	Slot atomic.Uint32
	// stacksOnly: nothing but stacks and names is to be had of its VM.
	stacksOnly atomic.Bool
	Code       atomic.Pointer[JITCode] // nil if no map of its VM names its code

	threads     threadList
	threadNames threadNames
	versions    versions
	// failureLogged: the agent panicked over the process, and logged that.
	failureLogged atomic.Bool
	// retry is when what could not be done for the process is to be tried again if it is sampled
	// then: ns of CLOCK_MONOTONIC, 0 if there is nothing.
	retry atomic.Int64

	mu sync.Mutex
	// Guarded by mu: what others leave for the worker.
	wanted []Wanted
	loads  []vmruntime.CodeLoad
	jobs   []job
	// Guarded by mu: what the worker leaves for everybody.
	task        string // what the kernel calls the process
	arg0        string // what it was started as, if the kernel has no name for it
	recorded    bool   // task is from a record of the kernel side
	runtime, vm string
	workload    proc.Workload
	executable  symbol.Mapping
	notes       []string
	missing     missing

	// naming guards names. It has a lock of its own, as whoever makes a profile keeps it for a
	// while: the drainer must not wait for that.
	naming sync.RWMutex
	names  map[RawFrame]Name

	work workerState // state of the worker that has the process
}

// HasCalls reports whether p's VM is attached and has calls and events to observe, not only stacks.
func (p *Process) HasCalls() bool { return p.Attachment.Load() != 0 && !p.stacksOnly.Load() }

// NoSlot is the slot of a process whose VM's was freed: another VM may have that.
const NoSlot = ^uint32(0)

// A Wanted is a frame to be named.
type Wanted struct {
	RawFrame
	Epoch uint32 // how often the VM had unloaded classes when the frame was sampled
	tries uint8  // failed attempts to name it

	notBefore time.Duration // CLOCK_MONOTONIC: when to try again
}

// A Name is what a raw frame turned out to be.
type Name struct {
	Symbols []symbol.Symbol // innermost first; several where methods were inlined
	BCIs    []int32         // bytecode indexes of the symbols, if they are methods: -1 if unknown
	// Enters says that the innermost symbol is a method that the VM interprets, and that may enter
	// a monitor there.
	Enters  bool
	Root    bool // a stack may end here although its frame-pointer chain does not say so
	Stale   bool
	Unknown bool
	bottom  bool // a function at which stacks of threads end, though its symbol does not say so
	// asOf is when the mappings had been read in which the frame was found, CLOCK_MONOTONIC; 0 if
	// it is none of a mapping.
	asOf time.Duration
}

// NewProcess is a process of which only the identity is known.
func NewProcess(id proc.Identity) *Process {
	return &Process{
		PID: id.PID, Ticks: id.Ticks(), Noticed: proc.Monotonic(), names: map[RawFrame]Name{}, work: newWorkerState(),
	}
}

// nsPerTick is the resolution of the start time in /proc/PID/stat.
const nsPerTick = 10_000_000

// Identity is enough to distinguish the process from others with its pid.
func (p *Process) Identity() proc.Identity {
	return proc.Identity{PID: p.PID, Start: p.Ticks * nsPerTick}
}

// Due reports whether a worker is to look at the process again, at that time of CLOCK_MONOTONIC in
// ns.
func (p *Process) Due(now uint64) bool {
	at := p.retry.Load()
	return at != 0 && now >= uint64(at)
}

// SetRetry makes the process Due from that time of CLOCK_MONOTONIC on.
func (p *Process) SetRetry(at time.Duration) { p.retry.Store(int64(at)) }

// TakeWanted removes the frames that wait for the worker, and returns them.
func (p *Process) TakeWanted() []Wanted {
	p.mu.Lock()
	defer p.mu.Unlock()
	frames := p.wanted
	p.wanted = nil
	return frames
}

// Ask has frames named when a worker comes to the process (Resolver.Submit).
func (p *Process) Ask(frames []Wanted) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wanted = append(p.wanted, frames...)
}

// Forget forgets the names of all frames but those to keep. It waits for nobody: while names are in
// use it forgets nothing, and returns false.
func (p *Process) Forget(keep func(RawFrame) bool) bool {
	if !p.naming.TryLock() {
		return false
	}
	defer p.naming.Unlock()
	maps.DeleteFunc(p.names, func(r RawFrame, _ Name) bool { return !keep(r) })
	return true
}

// A Description says who a process is. What was not found out is empty.
type Description struct {
	Comm, Service string
	Task          string // what the kernel calls the process, from which Comm is made
	Runtime, VM   string // the runtime's name, and what it says of itself
	Executable    symbol.Mapping
	Notes         []string // for readers of the process's part of profiles
}

// Describe says who the process is.
func (p *Process) Describe() Description {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Description{
		Comm: p.name(), Service: p.service(), Task: p.task, Runtime: p.runtime, VM: p.vm, Executable: p.executable,
		Notes: slices.Clone(p.notes),
	}
}

// name is what the process is called; "" if that is not known. The caller holds mu.
func (p *Process) name() string { return proc.NameOf(p.task, p.arg0) }

// Called records what a record of the kernel side calls the process: its own name at that time,
// which /proc no longer shows if the process is gone or runs another program.
func (p *Process) Called(task []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.task, p.recorded = proc.TaskName(task), true
}

// service is the service that the process belongs to, or else its name. The caller holds mu.
func (p *Process) service() string { return cmp.Or(p.workload.Service, p.name()) }

// Runtime is the process's runtime; "" if it is not known.
func (p *Process) Runtime() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.runtime
}

// Service is the service that the process belongs to; "" if it is not known.
func (p *Process) Service() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.service()
}

// Workload is what the process is called and where it runs, as far as it is known.
func (p *Process) Workload() proc.Workload {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.workload
	w.Service = p.service()
	return w
}

// SetRuntime records what a cooperating process calls its runtime, unless the runtime is known.
func (p *Process) SetRuntime(runtime string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.runtime == "" {
		p.runtime = runtime
	}
}

// Names are the names that frames of a process have. They do not change until Close: a worker that
// named another frame waits for it.
type Names struct{ process *Process }

// Names returns the names that frames have by now.
func (p *Process) Names() Names {
	p.naming.RLock()
	return Names{p}
}

// Close lets the names change again.
func (n Names) Close() { n.process.naming.RUnlock() }

// Len is how many frames have names.
func (n Names) Len() int { return len(n.process.names) }

// Lookup returns the name of r. If it was not named in time, the name says so.
func (n Names) Lookup(r RawFrame) Name {
	if n, ok := n.process.names[r]; ok {
		return n
	}
	return Name{Symbols: []symbol.Symbol{Marker("[not named in time]")}, Unknown: true}
}

// VM is the process's VM, nil if none is attached. The worker that has the process calls it.
func (p *Process) VM() *VM { return p.work.vm }

// Settled reports whether nothing is to be looked for in the process at that time of
// CLOCK_MONOTONIC: its VM is attached, or it is left alone after a failure.
func (p *Process) Settled(now time.Duration) bool {
	return p.Attachment.Load() != 0 || p.failureLogged.Load() && time.Duration(p.retry.Load()) > now
}

// maxPendingLoads bounds the announcements that wait for a worker: half a minute at the highest
// rate seen. Code whose announcement is forgotten is still named while it is there to be read.
const maxPendingLoads = 1 << 16

// Loaded leaves an announcement of new code for the worker. Beyond a bound announcements are
// dropped.
func (p *Process) Loaded(l vmruntime.CodeLoad) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.loads) < maxPendingLoads {
		p.loads = append(p.loads, l)
	}
}

// hasLoads reports whether announcements wait for the worker.
func (p *Process) hasLoads() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.loads) > 0
}

// takeLoads removes the announcements that wait for the worker, and returns them.
func (p *Process) takeLoads() []vmruntime.CodeLoad {
	p.mu.Lock()
	defer p.mu.Unlock()
	loads := p.loads
	p.loads = nil
	return loads
}

// SetName records what a frame is.
func (p *Process) SetName(r RawFrame, n Name) {
	p.naming.Lock()
	defer p.naming.Unlock()
	p.names[r] = n
}

// hasName reports whether a frame was named, if only as stale.
func (p *Process) hasName(r RawFrame) bool {
	p.naming.RLock()
	defer p.naming.RUnlock()
	_, ok := p.names[r]
	return ok
}

// inner returns the name that an outermost frame got where it was not the outermost one. It is as
// right here, where contexts end at frames that nobody sampled: what is found out when a window
// closes may be of a process that is gone.
func (p *Process) inner(r RawFrame) (n Name, ok bool) {
	if r.End == 0 {
		return n, false
	}
	r.End = 0
	p.naming.RLock()
	defer p.naming.RUnlock()
	n, ok = p.names[r]
	n.Symbols = slices.Clip(n.Symbols)
	return n, ok && !n.Stale && !n.Unknown
}

// Place is where the i-th symbol is in its method: the line, 0 if unknown, and the bytecode index,
// -1 if unknown.
func (n Name) Place(i int) (line, bci int32) {
	bci = -1
	if i < len(n.BCIs) {
		bci = n.BCIs[i]
	}
	return int32(n.Symbols[i].Value().Line), bci
}

// maxNotes bounds the notes on one process: what some of them say is the process's making.
const maxNotes = 32

// Note adds what readers of the process's part of profiles must know. It reports whether that is
// new.
func (p *Process) Note(text string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch n := len(p.notes); {
	case n > maxNotes || slices.Contains(p.notes, text):
		return false
	case n == maxNotes:
		p.notes = append(p.notes, fmt.Sprintf("process %d: further notes are omitted", p.PID))
		return false
	}
	p.notes = append(p.notes, text)
	return true
}
