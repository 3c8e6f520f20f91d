package guest

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// workerState belongs to the naming worker that has the process.
type workerState struct {
	known      bool          // comm, service and executable were read
	identified time.Duration // when that was, CLOCK_MONOTONIC
	mapped
	mapsRead time.Duration                // when, CLOCK_MONOTONIC
	mapsRest time.Duration                // how long they are not read again then
	mapsOld  bool                         // an address is in no mapping, which may be new
	objects  map[uint64]*symbolize.Object // by start of the mapping, while a worker has the process
	refused  map[fileID]bool              // files without symbols, as the process's user may not read them
	// sources are the files that lines are read from by start of the mapping, nil if there is none.
	sources  map[uint64]*os.File
	vm       *VM
	look     attachPace // pace of looking for a VM
	attach   attachPace // pace of attaching to the VM that was found
	hopeless bool       // there is a VM, and it will not be attached
	perf     perfMap    // map of a VM that is not attached
	heldUp   bool       // something that was read for a name did not come in time

	stage   Stage         // what is done now, for the case that it panics
	frames  []Wanted      // frames that are being named
	again   []Wanted      // frames that are to be named later
	due     time.Duration // CLOCK_MONOTONIC: when the latest timer for these ends
	failure failureState
}

func newWorkerState() workerState {
	return workerState{look: newAttachPace(), attach: newAttachPace()}
}

// mapped is what a process maps that can be executed.
type mapped struct {
	maps  proc.Maps
	files map[uint64]symbolize.FileKey // by start of the mapping, as far as the kernel reports them
	asOf  time.Duration                // when they had been read, CLOCK_MONOTONIC
}

// work does what there is to do for p. If that panics, p is left alone for a while.
func (rs *Resolver) work(p *Process) {
	if f := &p.work.failure; f.until != 0 {
		if proc.Monotonic() < f.until {
			rs.leaveAlone(p)
			return
		}
		f.until = 0
		p.retry.Store(0)
		p.askAgain()
	}
	err := proc.Catch(func() error {
		rs.workOn(p)
		return nil
	})
	if err != nil {
		rs.workFailed(p, err)
	}
}

// Begin records what the worker that has p does for it from now on, in case that panics.
func (rs *Resolver) Begin(s Stage, p *Process) {
	p.work.stage = s
	rs.Reach(s, p.PID)
}

// workOn does what there is to do for p. Reads of the target go through the pool and end after its
// deadline.
func (rs *Resolver) workOn(p *Process) {
	rs.Begin(StageAttach, p)
	if !p.Exited.Load() { // what has its pid now may be another program
		if !p.work.known {
			rs.identify(p)
		}
		if p.work.vm == nil && !p.work.hopeless {
			rs.findVM(p)
		}
		for _, f := range rs.follow {
			f.Look(p)
		}
	}
	frames, loads := p.TakeWanted(), p.takeLoads()
	p.work.frames = frames
	for _, f := range rs.follow {
		f.BeforeNames(p)
	}
	rs.Begin(StageNames, p)
	if g := p.work.vm; g != nil {
		// From here on no lock is held while the process is read, and nobody waits for it without a
		// deadline: another worker can take this one's place.
		g.direct.Set(true)
		defer g.direct.Set(false)
		rs.refresh(p, g)
		if p.TakeThreadsWanted() && !p.Exited.Load() {
			rs.readThreads(p, g)
		}
		if !p.Exited.Load() {
			rs.readThreadNames(p, g)
		}
		for _, l := range loads {
			g.Guest.Loaded(l)
			p.announced(g, l)
		}
	}
	p.work.objects = map[uint64]*symbolize.Object{}
	rs.followMap(p)
	rs.nameAll(p, frames)
	p.work.objects, p.work.frames = nil, nil
	rs.closeSources(p)
	rs.nameLater(p)
	if g := p.work.vm; g != nil {
		if !p.Exited.Load() {
			rs.followVersions(p, g, len(frames)+len(loads) > 0)
			rs.continueAttaching(p, g)
		}
		g.direct.Set(false)
	}
	rs.Begin(StageJobs, p)
	p.doJobs()
	if p.Exited.Load() {
		rs.disown(p)
		rs.release(p)
		rs.releaseMap(p)
	}
}

// A frame whose name could not be read in time is named later: the first read of a process has
// little time (proc.Pool). So is compiled code that seems to be gone: the VM may have been about to
// change something, or not have been attached. Should the code be there, it still has the compile
// id that was sampled; if not, it stays stale.
const (
	maxNameTries = 5
	nameAgain    = 300 * time.Millisecond // then twice as long each time
)

// nameLater gives back the frames that are to be tried again, and has a timer end when the first of
// them is due.
func (rs *Resolver) nameLater(p *Process) {
	again := p.work.again
	if p.work.again = nil; len(again) == 0 {
		return
	}
	p.mu.Lock()
	p.wanted = append(p.wanted, again...)
	p.mu.Unlock()
	next := slices.MinFunc(again, func(a, b Wanted) int { return cmp.Compare(a.notBefore, b.notBefore) }).notBefore
	if now := proc.Monotonic(); p.work.due <= now || next < p.work.due {
		p.work.due = max(next, now)
		rs.queue.submitLater(p, p.work.due-now)
	}
}

// nameAll names frames of p, and notes those to be tried again.
func (rs *Resolver) nameAll(p *Process, frames []Wanted) {
	now := proc.Monotonic()
	again := &p.work.again
	rs.prepare(p, frames, now)
	for i, r := range frames {
		p.work.frames = frames[i:] // those that have no name if this one panics
		if r.notBefore > now && !p.Exited.Load() {
			*again = append(*again, r)
			continue
		}
		p.work.heldUp, p.work.mapsOld = false, false
		n := rs.Name(p, r)
		late := p.work.heldUp
		if p.work.mapsOld && !late && r.tries == 0 && !p.Exited.Load() {
			next := r
			next.notBefore, next.tries = p.work.mapsRead+p.work.mapsRest, maxNameTries
			*again = append(*again, next)
		}
		gone := n.Stale && r.Kind <= RawExact && r.Frame.Kind() == bpf.FrameJIT
		if (late || gone) && r.tries < maxNameTries && !p.Exited.Load() {
			next := r
			next.notBefore = now + nameAgain<<r.tries
			next.tries++
			*again = append(*again, next)
			if late {
				continue
			}
		}
		if r.tries == 0 || !n.Stale && !n.Unknown || !p.hasName(r.RawFrame) {
			p.SetName(r.RawFrame, n)
		}
		rs.lookups.Add(1)
	}
}

// prepare has the VM of p read at once what names of frames need that are to be named now.
func (rs *Resolver) prepare(p *Process, frames []Wanted, now time.Duration) {
	g := p.work.vm
	if g == nil || p.Exited.Load() {
		return
	}
	preparer, err := As[vmruntime.Preparer](g)
	if err != nil {
		return
	}
	var sites []vmruntime.Site
	for _, r := range frames {
		if r.Kind <= RawExact && r.Frame.Kind() != bpf.FrameNative && r.notBefore <= now {
			sites = append(sites, g.Site(r.Frame, r.Kind == RawExact, r.Epoch))
		}
	}
	preparer.Prepare(sites)
}

// Between two steps of what the attachment of a VM left for later is continuePause at least, and up
// to longestContinuePause if the steps take more than one part in continueShare of the time. Few
// ever need it, and a short recording should not pay for it.
const (
	continuePause        = time.Second
	longestContinuePause = 10 * time.Second
	continueShare        = 1000
)

// continueAttaching does some of what the attachment of p's VM left for later, once its frames have
// names.
func (rs *Resolver) continueAttaching(p *Process, g *VM) {
	now := proc.Monotonic()
	if g.complete || now < g.more {
		return
	}
	continuer, err := As[vmruntime.Continuer](g)
	if err != nil {
		g.complete = true
		return
	}
	more, err := continuer.Continue()
	rs.reads.count(err)
	if g.complete = !more; more {
		done := proc.Monotonic()
		pause := min(max(continuePause, continueShare*(done-now)), longestContinuePause)
		g.more = done + pause
		rs.queue.submitLater(p, pause)
	}
}

// identify reads who p is.
func (rs *Resolver) identify(p *Process) {
	p.work.known = true
	root, pid := rs.root, p.PID
	comm, _ := root.Comm(pid)
	cgroup, _ := root.Cgroup(pid)
	exe, _ := root.Executable(pid)
	var launch proc.Launch
	if proc.NeedsLaunch(exe, cgroup) {
		var err error
		launch, err = Call(rs, p, func() (proc.Launch, error) { return root.Launch(pid) })
		rs.reads.count(err)
		for _, refused := range launch.Refused {
			rs.reads.count(refused)
		}
	}
	arg0 := ""
	if proc.Nameless(comm) {
		arguments, err := Call(rs, p, func() ([]string, error) { return root.Arguments(pid) })
		rs.reads.count(err)
		if len(arguments) > 0 {
			arg0 = arguments[0]
		}
	}
	if rs.root.Check(p.Identity()) != nil {
		return // it is gone, and another process may have its pid
	}
	p.work.identified = proc.Monotonic()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.arg0 = arg0; comm != "" && !p.recorded {
		p.task = comm
	}
	p.workload = proc.WorkloadOf(cgroup, &launch, p.name(), rs.host)
	if p.workload.Service == p.name() {
		p.workload.Service = "" // it follows the name
	}
	p.executable = symbol.Mapping{File: symbol.CleanName(exe)}
}

// Replaced records that the process has executed another program by that time of CLOCK_MONOTONIC.
func (p *Process) Replaced(at time.Duration) { p.replaced.Store(int64(at)) }

// execTakes is how long before its record a program may already be there for those who read the
// process.
const execTakes = 5 * time.Millisecond

// disown takes back what was read of p when it ran another program already. /proc does not say
// which program it shows, and the record of an execution comes later than the program. So frames
// lose the names that they have by the other one's mappings.
func (rs *Resolver) disown(p *Process) {
	replaced := time.Duration(p.replaced.Load())
	if replaced == 0 {
		return
	}
	before := replaced - execTakes
	if p.work.identified > before {
		p.work.identified = 0
		p.forgetProgram()
	}
	if p.work.asOf > before {
		p.work.mapped = mapped{}
	}
	frames := p.namedAfter(before)
	// An outermost frame takes the name that it has elsewhere: those come first.
	slices.SortFunc(frames, func(a, b RawFrame) int { return cmp.Compare(a.End, b.End) })
	for _, r := range frames {
		p.SetName(r, rs.Name(p, Wanted{RawFrame: r}))
	}
}

// forgetProgram forgets what /proc said of the process.
func (p *Process) forgetProgram() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.arg0, p.workload, p.executable = "", proc.Workload{}, symbol.Mapping{}
	if !p.recorded {
		p.task = ""
	}
}

// namedAfter are the frames whose names are by mappings that were read after that time.
func (p *Process) namedAfter(at time.Duration) (frames []RawFrame) {
	p.naming.RLock()
	defer p.naming.RUnlock()
	for r, n := range p.names {
		if n.asOf > at {
			frames = append(frames, r)
		}
	}
	return frames
}

// Mappings are read once in mapsInterval, and up to maxMapsInterval if they did not change: stacks
// of code without frame pointers have ever new addresses that are in no mapping.
const (
	mapsInterval        = 200 * time.Millisecond
	maxMapsInterval     = 10 * time.Second
	maxMapsIntervalNoVM = time.Second // for a process that may get a VM
)

// readMaps reads p's mappings, unless that was done a moment ago. It never takes another process's
// for p's: a process that is gone keeps those that it had.
func (rs *Resolver) readMaps(p *Process) bool {
	now := proc.Monotonic()
	if p.Exited.Load() || (p.work.mapsRead != 0 && now-p.work.mapsRead < p.work.mapsRest) {
		return false
	}
	if p.work.mapsRead == 0 {
		p.work.mapsRest = mapsInterval
	}
	p.work.mapsRead = now
	m, err := Call(rs, p, func() (mapped, error) {
		maps, err := rs.root.Maps(p.PID, proc.Executable)
		if err != nil {
			return mapped{}, err
		}
		return mapped{maps, fileKeys(rs.root, p.PID, maps), proc.Monotonic()}, rs.root.Check(p.Identity())
	})
	rs.reads.count(err)
	p.work.heldUp = p.work.heldUp || proc.HeldUp(err)
	if err != nil || p.Exited.Load() {
		return false
	}
	p.work.rest(m.maps)
	p.work.mapped = m
	return true
}

// rest says for how long maps that were just read are good.
func (w *workerState) rest(maps proc.Maps) {
	most := maxMapsInterval
	if w.vm == nil {
		most = maxMapsIntervalNoVM
	}
	if slices.Equal(maps, w.maps) {
		w.mapsRest = min(2*w.mapsRest, most)
	} else {
		w.mapsRest = mapsInterval
	}
}

// Call is proc.Call for the worker that has p, without a deadline of its own. A panic in fn goes on
// here.
func Call[T any](rs *Resolver, p *Process, fn func() (T, error)) (T, error) {
	v, err := proc.Call(context.Background(), rs.pool, p.PID, fn)
	proc.Repanic(err)
	return v, err
}

// Name resolves one frame. The worker that has p calls it.
func (rs *Resolver) Name(p *Process, r Wanted) Name {
	n, ok := p.inner(r.RawFrame)
	if !ok {
		n = rs.nameFrame(p, r)
	}
	if r.End == bpf.EndKnown {
		n.Symbols = append(n.Symbols, Marker("[callers unknown]"))
		return n
	}
	if !r.End.Truncated() {
		return n
	}
	// The frame-pointer chain of a native thread ends in garbage where its C library was built
	// without frame pointers.
	if r.End == bpf.EndPointer && len(n.Symbols) > 0 && (n.bottom ||
		symbolize.IsThreadRoot(n.Symbols[len(n.Symbols)-1].Value().SystemName)) {
		n.Root = true
		return n
	}
	n.Symbols = append(n.Symbols, Marker(cutText(r.End)))
	return n
}

func (rs *Resolver) nameFrame(p *Process, r Wanted) Name {
	switch {
	case r.Kind == RawNothing:
		return Name{}
	case r.Kind == RawLeftOut:
		return Name{Symbols: []symbol.Symbol{Marker(r.leftOutText())}}
	case r.Kind == RawStale:
		return Name{Symbols: []symbol.Symbol{Marker("[stale]")}, Stale: true}
	case r.Kind == RawKernel:
		return rs.nameKernel(uint64(r.Frame))
	case r.Kind == RawAddress && p.work.vm.covers(r.Frame.PC()):
		return rs.nameAddress(p, r)
	case r.Frame.Kind() == bpf.FrameNative:
		if low, distance, ok := r.Frame.MaybeCaller(); ok {
			return rs.nameMaybeCaller(p, r, low, distance)
		}
		return rs.nameNative(p, r)
	}
	return rs.nameVMFrame(p, r)
}

func (rs *Resolver) nameVMFrame(p *Process, r Wanted) Name {
	g := p.work.vm
	if g == nil {
		return Name{Symbols: []symbol.Symbol{Marker("[stale]")}, Stale: true}
	}
	site := g.Site(r.Frame, r.Kind == RawExact, r.Epoch)
	if at, ok := g.placeOf(site); ok {
		if n, ok := g.places[at]; ok {
			return n
		}
	}
	frames, err := g.Guest.Lookup(site)
	rs.reads.count(err)
	p.work.heldUp = p.work.heldUp || proc.HeldUp(err)
	if err != nil {
		f := symbol.Frame{Function: "[unknown]", SystemName: "[unknown]", Kind: symbol.KindUnknown, Mapping: g.mapping}
		if errors.Is(err, vmruntime.ErrStale) {
			f.Function, f.SystemName = "[stale]", "[stale]"
			return Name{Symbols: []symbol.Symbol{symbol.Intern(f)}, Stale: true}
		}
		f.Address = site.PC
		return Name{Symbols: []symbol.Symbol{symbol.Intern(f)}, Unknown: true}
	}
	rs.firstNamed.CompareAndSwap(0, int64(proc.Monotonic()-rs.began))
	mapping := g.interpreter
	if site.Kind != vmruntime.Interpreted {
		mapping = p.codeMapping(g, site, frames)
	}
	n := g.name(frames, site, mapping)
	g.keep(site, n)
	return n
}

// looksLikeJava reports whether a process that has no VM yet will probably start one.
func (p *Process) looksLikeJava() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return proc.IsJava(p.executable.File) || p.name() == "java"
}
