package agent

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

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

// Bounds on named frames, each about 150 bytes with its map entry.
const (
	maxNames  = 1 << 18 // of all processes; frames beyond it stay unnamed, counted, until windows close
	trimNames = 1 << 14 // of a process: from there on, those that no window needs are forgotten when one closes
)

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

// describe says who the process is; p.mu is held.
func (p *targetProcess) describe() *profile.Process {
	return &profile.Process{
		PID: p.pid, Comm: p.comm, Service: p.service, Executable: p.executable, Notes: slices.Clone(p.notes),
		Runtime: p.runtime, VM: p.vm,
	}
}

// named returns the name of r; p.mu is held. What was not named in time says so.
func (p *targetProcess) named(r rawFrame) name {
	if n, ok := p.names[r]; ok {
		return n
	}
	return name{symbols: []symbolize.Symbol{marker("[not named in time]")}, unknown: true}
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

// site is the place of the i-th symbol in its method.
func (n name) site(i int) profile.Site {
	s := profile.Site{Line: int32(n.symbols[i].Value().Line), Offset: -1}
	if i < len(n.bcis) {
		s.Offset = n.bcis[i]
	}
	return s
}

// marker is a frame that is no code: it tells the reader what is missing at its place.
func marker(text string) symbolize.Symbol {
	return symbolize.Intern(symbolize.Frame{Function: text, SystemName: text, Kind: symbolize.KindMarker, Mapping: noMapping})
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
