package agent

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A targetProcess is one process as workers know it, from its exec to its exit.
type targetProcess struct {
	pid   int
	ticks uint64 // start, 10 ms of CLOCK_BOOTTIME
	// noticed is when the agent learnt of it, CLOCK_MONOTONIC: soon after its exec, unless it was there before the agent.
	noticed time.Duration

	// attachment is the serial under which the kernel side knows this process's VM, 0 if none.
	attachment atomic.Uint32
	slot       atomic.Uint32           // of the VM, on the kernel side; good once attachment is
	code       atomic.Pointer[jitCode] // nil if no map of its VM names its code
	threads    threadList
	exited     atomic.Bool
	// failureLogged: the agent panicked over the process, and said so.
	failureLogged atomic.Bool
	// retry is when what could not be done for the process is to be tried again if it is sampled then: ns of CLOCK_MONOTONIC,
	// 0 if there is nothing.
	retry atomic.Int64

	mu sync.Mutex
	// Guarded by mu: what the drainer leaves for the worker.
	wanted []wanted
	loads  []vmruntime.CodeLoad
	jobs   []job
	// Guarded by mu: what the worker leaves for everybody.
	comm, service, runtime, vm string
	executable                 symbolize.Mapping
	notes                      []string
	missing                    missing
	names                      map[rawFrame]name

	work workerState
}

// A wanted is a frame to be named, and how often the guest had unloaded classes when it was sampled.
type wanted struct {
	rawFrame
	epoch uint32
	tries uint8 // to name it that were in vain

	notBefore time.Duration // CLOCK_MONOTONIC: when to try again
}

// A name is what a raw frame turned out to be.
type name struct {
	symbols []symbolize.Symbol // innermost first; several where methods were inlined
	bcis    []int32            // of the symbols, if they are methods: bytecode indexes, -1 if unknown
	root    bool               // a stack may end here although its frame-pointer chain does not say so
	stale   bool
	unknown bool
}

func newTargetProcess(id proc.Identity) *targetProcess {
	return &targetProcess{
		pid: id.PID, ticks: id.Ticks(), noticed: proc.Monotonic(), names: map[rawFrame]name{}, work: newWorkerState(),
	}
}

// nsPerStartTick is the resolution of the start time in /proc/PID/stat.
const nsPerStartTick = 10_000_000

// identity is enough to tell the process from others with its pid.
func (p *targetProcess) identity() proc.Identity {
	return proc.Identity{PID: p.pid, Start: p.ticks * nsPerStartTick}
}

// due tells whether a worker is to look at the process again, at that time of CLOCK_MONOTONIC.
func (p *targetProcess) due(now uint64) bool {
	at := p.retry.Load()
	return at != 0 && now >= uint64(at)
}

// setRetry has a worker look at the process when it is sampled from then on, CLOCK_MONOTONIC.
func (p *targetProcess) setRetry(at time.Duration) { p.retry.Store(int64(at)) }

// takeWanted takes the frames that wait for the worker.
func (p *targetProcess) takeWanted() []wanted {
	p.mu.Lock()
	defer p.mu.Unlock()
	frames := p.wanted
	p.wanted = nil
	return frames
}

// ask has frames named.
func (p *targetProcess) ask(frames []wanted) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wanted = append(p.wanted, frames...)
}

// forget forgets the names of frames that are not to be kept.
func (p *targetProcess) forget(keep func(rawFrame) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.names, func(r rawFrame, _ name) bool { return !keep(r) })
}

// A description says who a process is, as far as that was found out.
type description struct {
	Comm, Service, Runtime, VM string
	Executable                 symbolize.Mapping
	Notes                      []string // for readers of its part of profiles
}

// describe says who the process is.
func (p *targetProcess) describe() description {
	p.mu.Lock()
	defer p.mu.Unlock()
	return description{
		Comm: p.comm, Service: p.service, Runtime: p.runtime, VM: p.vm, Executable: p.executable, Notes: slices.Clone(p.notes),
	}
}

// kind is the process's runtime, and the service that it belongs to; "" if they are not known.
func (p *targetProcess) kind() (runtime, service string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.runtime, p.service
}

// callItself notes what a cooperating process calls its runtime, unless that is known.
func (p *targetProcess) callItself(runtime string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.runtime == "" {
		p.runtime = runtime
	}
}

// resolved are the names that frames of a process have. They do not change until close, for which workers wait that named
// another frame.
type resolved struct{ process *targetProcess }

// resolved returns the names that frames have by now.
func (p *targetProcess) resolved() resolved {
	p.mu.Lock()
	return resolved{p}
}

func (n resolved) close() { n.process.mu.Unlock() }

// len is how many frames have names.
func (n resolved) len() int { return len(n.process.names) }

// of returns the name of r. What was not named in time says so.
func (n resolved) of(r rawFrame) name {
	if n, ok := n.process.names[r]; ok {
		return n
	}
	return name{symbols: []symbolize.Symbol{marker("[not named in time]")}, unknown: true}
}

// vmOf is the process's VM, nil if none is attached. The worker that has the process calls it.
func (p *targetProcess) vmOf() *guest { return p.work.guest }

// settled reports whether nothing is to be looked for in the process at that time of CLOCK_MONOTONIC: its VM is attached, or it
// is left alone after a failure.
func (p *targetProcess) settled(now time.Duration) bool {
	return p.attachment.Load() != 0 || p.failureLogged.Load() && time.Duration(p.retry.Load()) > now
}

// maxPendingLoads bounds the announcements that wait for a worker: half a minute at the highest rate seen. Code whose
// announcement is forgotten is still named while it is there to be read.
const maxPendingLoads = 1 << 16

// loaded leaves an announcement of new code for the worker.
func (p *targetProcess) loaded(l vmruntime.CodeLoad) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.loads) < maxPendingLoads {
		p.loads = append(p.loads, l)
	}
}

// setName takes down what a frame is.
func (p *targetProcess) setName(r rawFrame, n name) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.names[r] = n
}

// hasName reports whether a frame was named, if only as stale.
func (p *targetProcess) hasName(r rawFrame) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.names[r]
	return ok
}

// inner returns the name that an outermost frame got where it was not the outermost one. It is as right here, where contexts
// end at frames that nobody sampled: what is found out when a window closes may be of a process that is gone.
func (p *targetProcess) inner(r rawFrame) (n name, ok bool) {
	if r.end == 0 {
		return n, false
	}
	r.end = 0
	p.mu.Lock()
	defer p.mu.Unlock()
	n, ok = p.names[r]
	n.symbols = slices.Clip(n.symbols)
	return n, ok && !n.stale && !n.unknown
}

// place is where the i-th symbol is in its method: the line, 0 if unknown, and the bytecode index, -1 if unknown.
func (n name) place(i int) (line, bci int32) {
	bci = -1
	if i < len(n.bcis) {
		bci = n.bcis[i]
	}
	return int32(n.symbols[i].Value().Line), bci
}

// maxNotes bounds the notes on one process: what some of them say is the process's making.
const maxNotes = 32

// note adds what readers of the process's part of profiles must know. It reports whether that is new.
func (p *targetProcess) note(text string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch n := len(p.notes); {
	case n > maxNotes || slices.Contains(p.notes, text):
		return false
	case n == maxNotes:
		p.notes = append(p.notes, fmt.Sprintf("process %d: there are more notes, which are left out", p.pid))
		return false
	}
	p.notes = append(p.notes, text)
	return true
}
