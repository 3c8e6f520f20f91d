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

	"github.com/cilium/ebpf/link"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/engines"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/intern"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/slow"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/source"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/guest/runtimes"
	"github.com/vmprof-agent/vmprof-agent/agent/guest/unwinding"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/library"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/ring"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/watch"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

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
	links     []link.Link       // links to what follows processes
	drained   chan struct{}     // closed when Run has returned
	observing chan struct{}     // closed when its sources have started
	sample    bpf.Sample        // scratch of the drainer
	executed  bool              // the drainer has met a program that was executed
	tables    *unwinding.Tables // unwind tables of native code
	stacks    *intern.Stacks    // nil unless samples refer to earlier ones; the drainer's

	looks   looks         // looks of seek
	running atomic.Bool   // everything is attached and recorded
	stopped atomic.Int64  // CLOCK_MONOTONIC, ns: when all sources had stopped; 0 if they have not
	refused atomic.Uint64 // processes that Choose found no room for
}

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
		NoTick:        a.atKernelTick() && attach.TicksEverywhere(),
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
	a.tables = unwinding.Start(unwinding.Config{
		Root: opt.Proc, Pool: a.services.Pool, Objects: objects, Log: log, Failed: a.unwindingFailed,
	})
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
	upkeep := time.NewTimer(proc.InStep(upkeepInterval))
	defer upkeep.Stop()
	refresh := time.NewTimer(proc.InStep(refreshInterval))
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
			upkeep.Reset(proc.InStep(upkeepInterval))
		case <-refresh.C:
			a.services.Resolver.Keep(guest.StageUpkeep, a.refresh)
			refresh.Reset(proc.InStep(refreshInterval))
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

// CallChoices says which engines sample calls, and why or why not.
func (a *Agent) CallChoices() []profile.Choice {
	if a.engines == nil {
		return nil
	}
	return a.engines.Choices()
}

// Guests is how many VMs are attached now.
func (a *Agent) Guests() int { return a.services.Resolver.VMs() }

// Close takes everything out of the kernel. Run must have returned, or never have been called.
func (a *Agent) Close() error {
	errs := []error{a.sources.endRequests()}
	a.tables.Close()
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
