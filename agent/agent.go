// Package agent is the profiler: it discovers processes, attaches to their VMs, drains the event
// stream, folds samples into calling context trees and closes them into immutable windows.
//
//	a, err := agent.New(ctx, agent.Options{Frequency: 99})
//	defer a.Close()
//	go a.Run(ctx)
//	w := a.Open(nil)
//	time.Sleep(10 * time.Second)
//	profile, err := w.Close(ctx)
//
// Three kinds of goroutines share the work. One drains the ring and folds; it only copies and
// dispatches. A few name frames, which takes reads of targets; each process is with one of them at
// a time. Those that close windows wait for the namers, up to a deadline. What all of them know of
// processes and windows is a fold.State, which its fold.Owner lends to one function at a time;
// sources get it, and all else that they need, as source.Services.
package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls/counters"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls/exact"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/cputime"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/engines"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/events"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/intern"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/monitors"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/slow"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/source"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/guest/runtimes"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/library"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/ring"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/watch"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// Options configure an Agent. The zero value samples the whole machine at 99 Hz.
type Options struct {
	Frequency int          // samples a second of CPU time, per CPU; 0 means DefaultFrequency
	Clock     attach.Clock // what decides when a sample is taken
	PIDs      []int        // only these processes and the children they start; nil means all
	// Filter chooses processes in the kernel even if PIDs is empty (more are added with Choose).
	Filter      bool
	MaxContexts int // calling contexts that open windows hold, all together; 0 means DefaultMaxContexts
	// RingBytes is the size of the event stream's buffer, a power of two; 0 means half a MiB for
	// each CPU, 1 to 4 MiB.
	RingBytes    uint32
	NameDeadline time.Duration    // how long closing a window waits for names; 0 means 2 s
	Proc         proc.Root        // where procfs is; "" means /proc
	Version      string           // version of the program, for comments in profiles
	Calls        *engines.Options // sample calls, too; nil means no
	Events       *events.Options  // record events of guests, too; nil means no
	Slow         *slow.Options    // keep the slowest invocations of a method; nil means no. It needs wall time
	// Breakpoints says whether call engines and MonitorEnters may set hardware breakpoints in
	// guests.
	Breakpoints attach.BreakpointPolicy
	NoTime      bool         // profiles leave out where time goes
	Log         *slog.Logger // nil means none
	// Settle is called by New once what takes privileges is loaded, before anything is read of a
	// target; nil means nothing.
	Settle func() error

	Contexts     profile.ContextMode // how calling contexts are found
	WalkEvery    uint32              // ContextChain: walk one in so many samples whose link is known; 0 adapts
	LeaveUnknown bool                // ContextChain: walk samples whose link is unknown no more often than others
	// ConfirmLevels, for ContextPartial, is how many frames in a row must be known; 0 means
	// bpf.DefaultConfirmLevels.
	ConfirmLevels uint32
	CheckContexts bool // also walk every stack in full, and report how many contexts were right
}

// DefaultFrequency is not a divisor of common timer rates, so that samples do not march in step
// with them.
const DefaultFrequency = 99

// ringBytes is how large the event stream's buffer is on this machine. The kernel maps it twice, so
// that it counts as twice as much memory of the agent.
func ringBytes() uint32 {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return bpf.DefaultRingBytes
	}
	return ringBytesOf(cpus)
}

// ringBytesOf is that for so many CPUs. Half a MiB holds more than a second of a CPU's samples at
// 999 Hz.
func ringBytesOf(cpus int) uint32 {
	const each, least = 512 << 10, 1 << 20
	size := uint32(least)
	for size < bpf.DefaultRingBytes && size < uint32(min(cpus, bpf.DefaultRingBytes/each))*each {
		size *= 2
	}
	return size
}

// DefaultMaxContexts is how many calling contexts windows hold where memory is not short: some 400
// MB with their names.
const DefaultMaxContexts = 1 << 22

// namingWorkers is how many processes are looked into at once.
const namingWorkers = 3

const (
	upkeepInterval  = 10 * time.Second // how often the agent looks for processes whose end it missed
	refreshInterval = time.Second      // how often it looks for CPUs that came or went
)

// An Agent profiles until it is closed.
type Agent struct {
	opt      Options
	services *source.Services
	owner    *fold.Owner   // owner of what is known of processes and windows
	hints    []string      // what every profile says of this agent's limits
	began    time.Duration // CLOCK_MONOTONIC

	sources   sources
	handlers  handlers         // handlers by kind of record
	engines   *engines.Engines // one of sources; nil if calls are not sampled
	slow      *slow.Source     // one of sources; nil if no method is followed
	ring      *ring.Reader     // ring of all that programs write
	flushes   flushes
	links     []link.Link    // links to what follows processes
	drained   chan struct{}  // closed when Run has returned
	observing chan struct{}  // closed when its sources have started
	sample    bpf.Sample     // scratch of the drainer
	stacks    *intern.Stacks // nil unless samples refer to earlier ones; the drainer's

	looks   looks         // looks of seek
	running atomic.Bool   // everything is attached and recorded
	stopped atomic.Int64  // CLOCK_MONOTONIC, ns: when all sources had stopped; 0 if they have not
	refused atomic.Uint64 // processes that Choose found no room for
}

func (o *Options) maxContexts() int { return cmp.Or(o.MaxContexts, DefaultMaxContexts) }

// New loads and attaches everything and looks at the processes that run already. Nothing ticks
// before Run.
func New(ctx context.Context, opt Options) (_ *Agent, err error) {
	if opt.Frequency == 0 {
		opt.Frequency = DefaultFrequency
	}
	if opt.Proc == "" {
		opt.Proc = proc.DefaultRoot
	}
	if opt.NameDeadline == 0 {
		opt.NameDeadline = 2 * time.Second
	}
	log := opt.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	a := &Agent{opt: opt, began: monotonic(), drained: make(chan struct{}), observing: make(chan struct{})}
	a.services = &source.Services{
		Root: opt.Proc, Log: log, Pool: proc.NewPool(proc.PoolOptions{}), Libraries: proc.NewPool(library.PoolOptions),
		Watcher:     watch.New(opt.Proc),
		Breakpoints: opt.Breakpoints, Period: a.period(), Filter: opt.Filter || len(opt.PIDs) > 0, Flush: a.flush,
		Refusal:     explainLoad,
		KernelTicks: a.atKernelTick(),
	}
	if err := checkPIDs(opt.Proc, opt.PIDs); err != nil {
		return nil, err
	}
	if err := attach.CheckRing("/sys"); err != nil {
		return nil, err
	}
	symbols := make(chan guest.Symbols, 1)
	loading, loaded := context.WithCancel(ctx)
	defer loaded()
	go func() { symbols <- guest.ReadSymbols(loading, opt.Proc) }() // while the kernel verifies the programs
	options := bpf.Options{
		FilterByPID: a.services.Filter, RingBytes: cmp.Or(opt.RingBytes, ringBytes()),
		Interrupting: opt.Calls.Interrupting() || opt.Events.Counters(),
		Contexts:     kernelModes[opt.Contexts], ConfirmLevels: opt.ConfirmLevels, LeaveUnknown: opt.LeaveUnknown,
		CheckContexts: opt.CheckContexts,
		NoTick:        a.atKernelTick() && attach.TicksEverywhere(), OnlyMulti: attach.NewUprobes().Multi(),
	}
	objects, err := bpf.Load(options)
	read := <-symbols
	if err != nil {
		read.Close()
		return nil, explainLoad(err)
	}
	a.services.Objects = objects
	a.services.Resolver = guest.NewResolver(guest.Config{
		Root: opt.Proc, Runtimes: runtimes.Table(), Log: log, Objects: objects, Pool: a.services.Pool,
		Attaching: a.services.Libraries,
		Began:     a.began,
	})
	a.own(objects.ChainRates, objects.SetSteady)
	a.services.Resolver.UseSymbols(read)
	a.hints = read.Hints
	defer func() {
		if err != nil {
			a.Close()
		}
	}()
	if host, err := opt.Proc.HostPIDs(); err == nil && !host {
		const hint = "the agent is not in the host's PID namespace: processes have no names, and process ids select " +
			"other processes; " +
			"run it on the host, or with --pid=host (hostPID: true)"
		a.services.Log.Warn(hint)
		a.hints = append(a.hints, hint)
	}
	// Before processes are chosen: what they start is, too.
	if err := a.watch(); err != nil {
		return nil, err
	}
	for _, pid := range opt.PIDs {
		if err := a.Choose(pid); err != nil {
			return nil, err
		}
	}
	if options.Interned() {
		if a.stacks, err = intern.New(objects, log); err != nil {
			return nil, err
		}
	}
	if a.ring, err = ring.NewReader(a.services.Objects.Events, a.services.Objects.NmiEvents); err != nil {
		return nil, fmt.Errorf("open event stream: %w", err)
	}
	if err := a.openSources(ctx, read.FindKernel); err != nil {
		return nil, err
	}
	objects.ForgetTypes()
	if opt.Settle != nil {
		if err := opt.Settle(); err != nil {
			a.services.Log.Warn("cannot drop privileges that are no longer needed", "err", err)
		}
	}
	for _, source := range a.sources.ending() {
		a.services.Resolver.Follow(source)
	}
	a.services.Resolver.Start(namingWorkers)
	a.discover(ctx)
	return a, nil
}

// kernelModes are the modes as the kernel side knows them.
var kernelModes = [...]bpf.Mode{profile.ContextWalk: bpf.ModeWalk, profile.ContextPartial: bpf.ModePartial,
	profile.ContextChain: bpf.ModeChain}

// own makes the owner of a new state, given what that sets on the kernel side.
func (a *Agent) own(rates interface{ Put(key, value any) error }, setSteady func(uint64, bool) error) {
	a.owner = fold.NewOwner(fold.NewState(fold.StateOptions{
		Join: fold.JoinOptions{
			Contexts: a.opt.Contexts, Check: a.opt.CheckContexts, WalkEvery: a.opt.WalkEvery,
			LeaveUnknown: a.opt.LeaveUnknown,
			Log:          a.services.Log, Rates: rates, SetSteady: setSteady,
		},
		MaxContexts: a.opt.maxContexts(),
		Submit:      func(p *guest.Process) { a.services.Resolver.Submit(p) },
		Flush:       a.sources.flush, NeedNames: a.sources.needNames,
	}), a.requestFailed)
	a.services.Owner = a.owner
}

// requestFailed counts and logs the panic of a function that had the state.
func (a *Agent) requestFailed(err error) {
	a.services.Resolver.CountFailure(guest.StageWindow)
	a.services.Log.Error("the agent failed to use what it knows of processes and windows; please report this", "err",
		err, "stack", guest.StackOf(err))
}

// openSources opens what the options ask for, given how functions of the kernel are found, and has
// records handled by what they are of.
func (a *Agent) openSources(ctx context.Context, find attach.Functions) error {
	a.handlers = a.ownHandlers()
	ticks, err := newTicks(a, find)
	if err != nil {
		return err
	}
	a.sources.first = []source.Source{ticks}
	var waits *bpf.OffCPU
	if opt := a.opt.Events; opt != nil {
		of := *opt
		of.Slow = a.opt.Slow != nil
		events, err := events.Open(a.services, of)
		if err != nil {
			return err
		}
		waits = events.OffCPU()
		a.handlers[bpf.EventObserved] = handler{events.Handle, events.Fail}
		a.handlers[bpf.EventVMThreadEnd] = handler{events.HandleThreadEnd, nil}
		a.sources.first = []source.Source{events, ticks}
		if opt.MonitorEnters {
			if !opt.Kinds[profile.Locks] {
				return errors.New("monitor enters need lock recording (-e lock)")
			}
			enters, err := monitors.OpenEnters(a.services, monitors.EntersOptions{
				Heaps: events.Programs.Heaps, Share: events.FairShare(), Fades: a.hotFades,
			})
			if err != nil {
				return err
			}
			events.CompleteWith(enters.Complete)
			a.sources.then = append(a.sources.then, enters)
		}
	}
	switch opt := a.opt.Calls; {
	case opt == nil:
	case opt.Exact == engines.ExactCounters:
		a.sources.then = append(a.sources.then, counters.New(a.services))
	case opt.Exact != engines.NotExact:
		x := exact.New(a.services, opt.Exact == engines.ExactEdges, opt.ExactObjects)
		a.handlers[bpf.EventNewMethod] = handler{x.HandleNewMethod, nil}
		a.sources.then = append(a.sources.then, x)
	default:
		if a.engines, err = engines.Open(a.services, opt.WithDefaults()); err != nil {
			return err
		}
		a.handlers[bpf.EventCall] = handler{a.engines.HandleCall, a.engines.Fail}
		a.handlers[bpf.EventNamedCall] = handler{a.engines.HandleNamedCall, a.engines.Fail}
		a.sources.then = append(a.sources.then, a.engines)
	}
	if opt := a.opt.Slow; opt != nil {
		if a.slow, err = slow.Open(ctx, a.services, *opt, waits); err != nil {
			return err
		}
		a.handlers[bpf.EventInvocation] = handler{a.slow.Handle, nil}
		a.sources.then = append(a.sources.then, a.slow)
	}
	if a.opt.counted() {
		a.sources.first = append(a.sources.first, cputime.Open(a.services))
		a.handlers[bpf.EventThreadEnd] = handler{cputime.Handle, nil}
	}
	hot := a.sources.needHot()
	return a.owner.Do(func(s *fold.State) { s.Hot = hot })
}

// SlowErr is why invocations of the method of Options.Slow are not followed any more; nil if they
// are.
func (a *Agent) SlowErr() error {
	if a.slow == nil {
		return nil
	}
	return a.slow.Err()
}

// ownHandlers are those of records that every agent handles.
func (a *Agent) ownHandlers() handlers {
	return handlers{
		bpf.EventSample:      {a.handleSample, (*fold.State).Fail},
		bpf.EventFullSample:  {a.handleFull, (*fold.State).Fail},
		bpf.EventShortSample: {a.handleShort, (*fold.State).Fail},
		bpf.EventCodeLoad:    {handleCodeLoad, nil},
		bpf.EventProcessExec: {a.handleExec, nil},
		bpf.EventProcessExit: {handleExit, nil},
	}
}

// hotFades reports whether call engines count which code is busy, and let that fade.
func (a *Agent) hotFades() bool { return a.engines != nil && a.engines.NeedsHot() }

// Run samples, or counts calls, until ctx ends; then it stops, drains what is left and returns.
func (a *Agent) Run(ctx context.Context) error {
	defer close(a.drained)
	drainCtx, endDrain := context.WithCancel(context.WithoutCancel(ctx))
	defer endDrain()
	drained := make(chan error, 1)
	go func() { drained <- a.drain(drainCtx) }()
	// Sources end before the ring is drained for the last time.
	end := func(why error) error {
		err := a.sources.stop()
		a.stopped.Store(int64(monotonic()))
		endDrain()
		return errors.Join(why, err, <-drained)
	}
	if err := start(drainCtx, a.sources.first); err != nil {
		return end(err)
	}
	a.running.Store(true)
	defer a.running.Store(false)
	if err := start(drainCtx, a.sources.then); err != nil {
		return end(err)
	}
	close(a.observing)
	upkeep := time.NewTicker(upkeepInterval)
	defer upkeep.Stop()
	refresh := time.NewTicker(refreshInterval)
	defer refresh.Stop()
	for {
		select {
		case err := <-drained:
			err = errors.Join(err, a.sources.stop())
			a.stopped.Store(int64(monotonic()))
			return err
		case err := <-a.sources.failed():
			return end(err)
		case <-upkeep.C:
			a.services.Resolver.Keep(guest.StageUpkeep, a.sweep)
		case <-refresh.C:
			a.services.Resolver.Keep(guest.StageUpkeep, a.refresh)
		case <-ctx.Done():
			return end(nil)
		}
	}
}

func (a *Agent) refresh() {
	if err := a.sources.refresh(); err != nil {
		a.services.Log.Warn("cannot follow CPUs that went online or offline", "err", err)
	}
	if err := a.services.Resolver.RefreshKernel(); err != nil {
		a.services.Log.Warn("cannot follow code that is loaded into the kernel", "err", err)
	}
}

// Ready returns when all is observed that is to be: the sources have started, and the agent is
// attached to the VMs of the chosen processes. It returns without that when ctx or Run ends, or
// after patience. What was recorded until then has been handled.
func (a *Agent) Ready(ctx context.Context, patience time.Duration) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	select {
	case <-a.observing:
	case <-a.drained:
		return
	case <-ctx.Done():
		return
	}
	var chosen []*guest.Process
	a.owner.Do(func(s *fold.State) {
		for _, pid := range a.opt.PIDs {
			if p := s.Table[pid]; p != nil {
				chosen = append(chosen, p.Process)
			}
		}
	})
	attaching := func() bool { return slices.ContainsFunc(chosen, (*guest.Process).Attaching) }
	for again := true; again && ctx.Err() == nil; again = attaching() {
		a.services.Resolver.Wait(ctx, chosen, patience)
		if attaching() {
			time.Sleep(attachLook)
		}
	}
	if err := a.flush(ctx); err != nil && ctx.Err() == nil {
		a.services.Log.Warn("records from before the recording may be in it", "err", err)
	}
}

// attachLook is how often Ready looks whether VMs are attached that could not be at once.
const attachLook = 5 * time.Millisecond

// Open begins a window over these processes, nil for all.
func (a *Agent) Open(pids []int) *Window {
	var chosen map[int]bool
	if len(pids) > 0 {
		chosen = map[int]bool{}
		for _, pid := range pids {
			chosen[pid] = true
		}
	}
	w := newWindow(a, chosen)
	snapshot := a.snapshot()
	a.owner.Do(func(s *fold.State) {
		w.before = snapshot(s)
		for one := range implementing[source.Opener](&a.sources) {
			one.Opened(s, w.open)
		}
		w.start, w.open.Began = time.Now(), monotonic()
		s.Open(w.open)
	})
	return w
}

// Follow hands one window after the other to observe, each of that length, until ctx ends. Every
// sample is in exactly one of them. The last one, which ends with ctx, is shorter; it is dropped if
// it has less than a tenth of the length. If observe panics, that is counted and logged, and costs
// that window: what is in it comes from processes.
func (a *Agent) Follow(ctx context.Context, length time.Duration, observe func(*profile.Profile)) error {
	tick := time.NewTicker(length)
	defer tick.Stop()
	w := a.Open(nil)
	defer func() { a.drop(w) }()
	for {
		select {
		case <-ctx.Done():
			p, err := w.Close(context.WithoutCancel(ctx))
			if err != nil {
				return fmt.Errorf("close the last window: %w", err)
			}
			if p.Duration >= length/10 {
				a.services.Resolver.Keep(guest.StageObserve, func() { observe(p) })
			}
			return nil
		case <-tick.C:
		}
		next, p, err := w.Next(context.WithoutCancel(ctx))
		if err != nil {
			return fmt.Errorf("close window: %w", err)
		}
		w = next
		a.services.Resolver.Keep(guest.StageObserve, func() { observe(p) })
	}
}

// Collect opens a window, closes it after d or when ctx ends, and returns what it holds.
func (a *Agent) Collect(ctx context.Context, d time.Duration, pids []int) (*profile.Profile, error) {
	a.sources.expect(d)
	w := a.Open(pids)
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return w.Close(context.WithoutCancel(ctx))
}

// CallChoices says which engines sample calls, and why or why not.
func (a *Agent) CallChoices() []profile.Choice {
	if a.engines == nil {
		return nil
	}
	return a.engines.Choices()
}

// Guests is how many VMs are attached now.
func (a *Agent) Guests() int { return a.services.Resolver.VMs() }

// period is the CPU time that one sample stands for.
func (a *Agent) period() time.Duration { return time.Second / time.Duration(a.opt.Frequency) }

// Close takes everything out of the kernel. Run must have returned, or never have been called.
func (a *Agent) Close() error {
	errs := []error{a.sources.endRequests()}
	a.services.Resolver.Stop()
	errs = append(errs, a.services.Resolver.Close(), a.sources.close())
	for _, l := range a.links {
		errs = append(errs, l.Close())
	}
	if a.ring != nil {
		errs = append(errs, a.ring.Close())
	}
	errs = append(errs, a.services.Objects.Close())
	return errors.Join(errs...)
}
