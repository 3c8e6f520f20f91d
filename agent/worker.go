package agent

import (
	"cmp"
	"context"
	"errors"
	"path"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// workerState belongs to the naming worker that has the process.
type workerState struct {
	known bool // comm, service and executable were read
	mapped
	mapsRead time.Duration                // when, CLOCK_MONOTONIC
	objects  map[uint64]*symbolize.Object // by start of the mapping, while a worker has the process
	guest    *guest
	look     attachPace // of looking for a VM
	attach   attachPace // to the VM that was found
	hopeless bool       // there is a VM, and it will not be attached
	perf     perfMap    // of a VM that is not attached
	heldUp   bool       // something that was read for a name did not come in time

	stage   stage         // what is done now, for the case that it panics
	frames  []wanted      // that are being named
	again   []wanted      // that are to be named later
	due     time.Duration // CLOCK_MONOTONIC: when the latest timer for these ends
	failure failureState
}

func newWorkerState() workerState {
	return workerState{look: newAttachPace(), attach: newAttachPace()}
}

// mapped is what a process maps that can be executed.
type mapped struct {
	maps  proc.Maps
	files map[uint64]symbolize.FileKey // by start of the mapping, as far as the kernel tells
}

// work does what there is to do for p. If that panics, p is left alone for a while.
func (ts *targets) work(p *targetProcess) {
	if f := &p.work.failure; f.until != 0 {
		if proc.Monotonic() < f.until {
			ts.leaveAlone(p)
			return
		}
		f.until = 0
		p.retry.Store(0)
		p.askAgain()
	}
	err := proc.Catch(func() error {
		ts.workOn(p)
		return nil
	})
	if err != nil {
		ts.workFailed(p, err)
	}
}

// begin notes what the worker does for p from now on.
func (ts *targets) begin(s stage, p *targetProcess) {
	p.work.stage = s
	ts.reach(s, p.pid)
}

// workOn does what there is to do for p. Reads of the target go through the pool and end after its deadline.
func (ts *targets) workOn(p *targetProcess) {
	ts.begin(stageAttach, p)
	if !p.exited.Load() { // what has its pid now may be another program
		if !p.work.known {
			ts.identify(p)
		}
		if p.work.guest == nil && !p.work.hopeless {
			ts.findGuest(p)
		}
		for _, f := range ts.follow {
			f.look(p)
		}
	}
	p.mu.Lock()
	frames, loads := p.wanted, p.loads
	p.wanted, p.loads = nil, nil
	p.work.frames = frames
	p.mu.Unlock()
	for _, f := range ts.follow {
		f.beforeNames(p)
	}
	ts.begin(stageNames, p)
	if g := p.work.guest; g != nil {
		ts.refresh(p, g)
		if p.takeThreadsWanted() && !p.exited.Load() {
			ts.readThreads(p, g)
		}
		for _, l := range loads {
			g.vm.Loaded(l)
		}
	}
	p.work.objects = map[uint64]*symbolize.Object{}
	ts.followMap(p)
	ts.nameAll(p, frames)
	p.work.objects, p.work.frames = nil, nil
	ts.nameLater(p)
	ts.begin(stageJobs, p)
	p.doJobs()
	if p.exited.Load() {
		ts.release(p)
		ts.releaseMap(p)
	}
}

// A frame whose name could not be read in time is named later: the first read of a process has little time (proc.Pool). So is
// compiled code that seems to be gone: the VM may have been about to change something, or not have been attached. Should the
// code be there, it still has the compile id that was sampled; if not, it stays stale.
const (
	maxNameTries = 5
	nameAgain    = 300 * time.Millisecond // then twice as long each time
)

// nameLater gives back the frames that are to be tried again, and has a timer end when the first of them is due.
func (ts *targets) nameLater(p *targetProcess) {
	again := p.work.again
	if p.work.again = nil; len(again) == 0 {
		return
	}
	p.mu.Lock()
	p.wanted = append(p.wanted, again...)
	p.mu.Unlock()
	next := slices.MinFunc(again, func(a, b wanted) int { return cmp.Compare(a.notBefore, b.notBefore) }).notBefore
	if now := proc.Monotonic(); p.work.due <= now || next < p.work.due {
		p.work.due = max(next, now)
		ts.names.submitLater(p, p.work.due-now)
	}
}

// nameAll names frames of p, and notes those to be tried again.
func (ts *targets) nameAll(p *targetProcess, frames []wanted) {
	now := proc.Monotonic()
	again := &p.work.again
	for i, r := range frames {
		p.work.frames = frames[i:] // those that have no name if this one panics
		if r.notBefore > now && !p.exited.Load() {
			*again = append(*again, r)
			continue
		}
		p.work.heldUp = false
		n := ts.name(p, r)
		late := p.work.heldUp
		gone := n.stale && r.kind <= rawExact && r.frame.Kind() == bpf.FrameJIT
		if (late || gone) && r.tries < maxNameTries && !p.exited.Load() {
			next := r
			next.notBefore = now + nameAgain<<r.tries
			next.tries++
			*again = append(*again, next)
			if late {
				continue
			}
		}
		if r.tries == 0 || !n.stale && !n.unknown || !p.hasName(r.rawFrame) {
			p.setName(r.rawFrame, n)
		}
		ts.lookups.Add(1)
	}
}

// identify reads who p is.
func (ts *targets) identify(p *targetProcess) {
	p.work.known = true
	root, pid := ts.root, p.pid
	comm, _ := root.Comm(pid)
	cgroup, _ := root.Cgroup(pid)
	exe, _ := root.Executable(pid)
	p.mu.Lock()
	defer p.mu.Unlock()
	if comm != "" {
		p.comm = comm
	}
	p.service = proc.Service(cgroup, p.comm)
	p.executable = symbolize.Mapping{File: symbolize.CleanName(exe)}
}

// readMaps reads p's mappings, at most once in mapsInterval. It never takes another process's for p's: a process that
// is gone keeps those that it had.
func (ts *targets) readMaps(p *targetProcess) bool {
	const mapsInterval = 200 * time.Millisecond
	now := proc.Monotonic()
	if p.exited.Load() || (p.work.mapsRead != 0 && now-p.work.mapsRead < mapsInterval) {
		return false
	}
	p.work.mapsRead = now
	m, err := callFor(ts, p, func() (mapped, error) {
		maps, err := ts.root.Maps(p.pid, proc.Executable)
		if err != nil {
			return mapped{}, err
		}
		return mapped{maps, fileKeys(ts.root, p.pid, maps)}, ts.root.Check(p.identity())
	})
	ts.reads.count(err)
	p.work.heldUp = p.work.heldUp || proc.HeldUp(err)
	if err != nil || p.exited.Load() {
		return false
	}
	p.work.mapped = m
	return true
}

// callFor is proc.Call for a worker that has p: a panic in fn goes on here.
func callFor[T any](ts *targets, p *targetProcess, fn func() (T, error)) (T, error) {
	v, err := proc.Call(context.Background(), ts.pool, p.pid, fn)
	proc.Repanic(err)
	return v, err
}

// name resolves one frame.
func (ts *targets) name(p *targetProcess, r wanted) name {
	n, ok := p.inner(r.rawFrame)
	if !ok {
		n = ts.nameFrame(p, r)
	}
	if r.end == bpf.EndKnown {
		n.symbols = append(n.symbols, marker("[callers unknown]"))
		return n
	}
	if !r.end.Truncated() {
		return n
	}
	// The frame-pointer chain of a native thread ends in garbage where its C library was built without frame pointers.
	if r.end == bpf.EndPointer && len(n.symbols) > 0 && symbolize.IsThreadRoot(n.symbols[len(n.symbols)-1].Value().SystemName) {
		n.root = true
		return n
	}
	n.symbols = append(n.symbols, marker("[truncated: "+r.end.String()+"]"))
	return n
}

func (ts *targets) nameFrame(p *targetProcess, r wanted) name {
	switch {
	case r.kind == rawNothing:
		return name{}
	case r.kind == rawLeftOut:
		return name{symbols: []symbolize.Symbol{marker(r.leftOutText())}}
	case r.kind == rawStale:
		return name{symbols: []symbolize.Symbol{marker("[stale]")}, stale: true}
	case r.kind == rawKernel:
		return ts.nameKernel(uint64(r.frame))
	case r.kind == rawAddress && p.work.guest.covers(r.frame.PC()):
		return ts.nameAddress(p, r)
	case r.frame.Kind() == bpf.FrameNative:
		return ts.nameNative(p, r)
	}
	return ts.nameGuest(p, r)
}

func (ts *targets) nameGuest(p *targetProcess, r wanted) name {
	g := p.work.guest
	if g == nil {
		return name{symbols: []symbolize.Symbol{marker("[stale]")}, stale: true}
	}
	site := g.site(r.frame, r.kind == rawExact, r.epoch)
	frames, err := g.vm.Lookup(site)
	ts.reads.count(err)
	p.work.heldUp = p.work.heldUp || proc.HeldUp(err)
	if err != nil {
		f := symbolize.Frame{Function: "[unknown]", SystemName: "[unknown]", Kind: symbolize.KindUnknown, Mapping: g.mapping, Address: site.PC}
		if errors.Is(err, vmruntime.ErrStale) {
			f.Function, f.SystemName = "[stale]", "[stale]"
			return name{symbols: []symbolize.Symbol{symbolize.Intern(f)}, stale: true}
		}
		return name{symbols: []symbolize.Symbol{symbolize.Intern(f)}, unknown: true}
	}
	ts.firstNamed.CompareAndSwap(0, int64(proc.Monotonic()-ts.began))
	return guestName(frames, site, g)
}

// looksLikeJava tells whether a process that has no VM yet will probably start one.
func looksLikeJava(exe, comm string) bool {
	return path.Base(exe) == "java" || comm == "java"
}
