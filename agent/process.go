package agent

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A process is one process that was sampled or announced, from its exec to its exit.
type process struct {
	pid   int
	ticks uint64 // start, 10 ms of CLOCK_BOOTTIME
	// noticed is when the agent learnt of it, CLOCK_MONOTONIC: soon after its exec, unless it was there before the agent.
	noticed time.Duration

	// Guarded by agent.mu; the drainer holds it.
	id        proc.Identity
	precise   bool                  // id.Start came from the kernel side, in ns; otherwise in 10 ms
	requested map[rawFrame]struct{} // frames that were sent to be named
	samples   uint64                // received
	// How often its VM had unloaded classes when it was last sampled.
	classEpoch uint32
	top        topEdges     // of late, if somebody wants to know
	hot        hotAddresses // likewise, in code that its map names
	strangers  strangers
	chaining   *chaining // nil unless contexts are chained
	holders    int       // open and closing windows that have samples of it

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

func newProcess(id proc.Identity, precise bool) *process {
	return &process{
		pid: id.PID, ticks: id.Ticks(), id: id, precise: precise, noticed: monotonic(),
		requested: map[rawFrame]struct{}{}, names: map[rawFrame]name{},
		work: newWorkerState(),
	}
}

// identity is enough to tell the process from others with its pid.
func (p *process) identity() proc.Identity {
	return proc.Identity{PID: p.pid, Start: p.ticks * nsPerStartTick}
}

// due tells whether a worker is to look at the process again, at that time of CLOCK_MONOTONIC.
func (p *process) due(now uint64) bool {
	at := p.retry.Load()
	return at != 0 && now >= uint64(at)
}

// want asks for the names of those frames of a stack that were not asked for yet; it tells whether there were any.
// Only the drainer calls it.
func (p *process) want(stack []rawFrame, epoch uint32, total *atomic.Int64) bool {
	var fresh []wanted
	for _, r := range stack {
		if _, ok := p.requested[r]; !ok && total.Load() < maxNames {
			p.requested[r] = struct{}{}
			total.Add(1)
			w := wanted{rawFrame: r, epoch: epoch}
			if r.kind <= rawExact && r.frame.Kind() == bpf.FrameInterpreted {
				w.epoch = r.epoch // of a context, it may be older: what is at that address now is another method then
			}
			fresh = append(fresh, w)
		}
	}
	if fresh == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wanted = append(p.wanted, fresh...)
	return true
}

// trim forgets the names that are not needed; agent.mu is held.
func (p *process) trim(needed map[rawFrame]struct{}, total *atomic.Int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for r := range p.requested {
		if _, ok := needed[r]; !ok {
			delete(p.requested, r)
			total.Add(-1)
		}
	}
	// A worker may have named frames after they were forgotten here the last time.
	maps.DeleteFunc(p.names, func(r rawFrame, _ name) bool {
		_, ok := p.requested[r]
		return !ok
	})
}

// earlier orders processes as a Profile does.
func earlier(a, b *process) int {
	return cmp.Or(cmp.Compare(a.pid, b.pid), cmp.Compare(a.ticks, b.ticks), cmp.Compare(a.id.Exec, b.id.Exec))
}

// named returns the name of r; p.mu is held. What was not named in time says so.
func (p *process) named(r rawFrame) name {
	if n, ok := p.names[r]; ok {
		return n
	}
	return name{symbols: []symbolize.Symbol{marker("[not named in time]")}, unknown: true}
}

// setName takes down what a frame is.
func (p *process) setName(r rawFrame, n name) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.names[r] = n
}

// hasName reports whether a frame was named, if only as stale.
func (p *process) hasName(r rawFrame) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.names[r]
	return ok
}

// inner returns the name that an outermost frame got where it was not the outermost one. It is as right here, where contexts
// end at frames that nobody sampled: what is found out when a window closes may be of a process that is gone.
func (p *process) inner(r rawFrame) (n name, ok bool) {
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
func (p *process) note(text string) bool {
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
