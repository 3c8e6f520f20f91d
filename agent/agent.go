// Package agent is the profiler: it discovers processes, attaches to their VMs, drains the event stream, folds samples
// into calling context trees and closes them into immutable windows.
//
//	a, err := agent.New(ctx, agent.Options{Frequency: 99})
//	defer a.Close()
//	go a.Run(ctx)
//	w := a.Open(nil)
//	time.Sleep(10 * time.Second)
//	profile, err := w.Close(ctx)
//
// Three kinds of goroutines share the work. One drains the ring and folds; it only copies and dispatches. A few name
// frames, which takes reads of targets; each process is with one of them at a time. Those that close windows wait
// for the namers, up to a deadline.
package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	"github.com/cilium/ebpf/link"

	"github.com/vmprof-agent/vmprof-agent/agent/attach"
	"github.com/vmprof-agent/vmprof-agent/agent/events"
	"github.com/vmprof-agent/vmprof-agent/agent/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/library"
	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/ring"
	"github.com/vmprof-agent/vmprof-agent/agent/runtimes"
	"github.com/vmprof-agent/vmprof-agent/agent/target"
	"github.com/vmprof-agent/vmprof-agent/agent/watch"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// Options configure an Agent. The zero value samples the whole machine at 99 Hz.
type Options struct {
	Frequency    int                     // samples a second of CPU time, per CPU; 0 means DefaultFrequency
	PIDs         []int                   // only these processes and the children they start; nil means all
	Filter       bool                    // choose processes in the kernel even if PIDs is empty (more are added with Choose)
	MaxContexts  int                     // that open windows hold, all together; 0 means DefaultMaxContexts
	RingBytes    uint32                  // of the event stream's buffer, a power of two; 0 means bpf.DefaultRingBytes
	NameDeadline time.Duration           // how long closing a window waits for names; 0 means 2 s
	Proc         proc.Root               // where procfs is; "" means /proc
	Version      string                  // of the program, for comments in profiles
	Calls        *CallOptions            // sample calls, too; nil means no
	Events       *events.Options         // record events of guests, too; nil means no
	Breakpoints  attach.BreakpointPolicy // whether call engines and MonitorEnters may set hardware breakpoints in guests
	NoTime       bool                    // profiles leave out where time goes
	Log          *slog.Logger            // nil means none
	// Settle is called by New once what takes privileges is loaded, before anything is read of a target; nil means nothing.
	Settle func() error

	Contexts      profile.ContextMode // how calling contexts are found
	WalkEvery     uint32              // ContextChain: walk one in so many samples whose link is known; 0 adapts
	LeaveUnknown  bool                // ContextChain: walk samples whose link is unknown no more often than others
	ConfirmLevels uint32              // ContextPartial: frames in a row that must be known; 0 means bpf.DefaultConfirmLevels
	CheckContexts bool                // walk every stack all the same, and tell how many contexts were right
}

// DefaultFrequency is not a divisor of common timer rates, so that samples do not march in step with them.
const DefaultFrequency = 99

// DefaultMaxContexts is how many calling contexts windows hold where memory is not short: some 400 MB with their names.
const DefaultMaxContexts = 1 << 22

// namingWorkers is how many processes are looked into at once.
const namingWorkers = 3

// upkeepInterval is how often the agent looks for CPUs that came or went, and for processes whose end it missed.
const upkeepInterval = 10 * time.Second

// An Agent profiles until it is closed.
type Agent struct {
	opt      Options
	root     proc.Root
	log      *slog.Logger
	objects  *bpf.Objects
	pool     *proc.Pool // for reads of targets
	resolver *target.Resolver
	joiner   *fold.Joiner  // mu guards it
	hints    []string      // what every profile says of this agent's limits
	began    time.Duration // CLOCK_MONOTONIC

	sources sources
	engines *callEngines   // of sources, for what folds calls; nil if calls are not sampled
	events  *eventSource   // of sources, for what folds events; nil if events are not recorded
	ring    *ring.Reader   // of all that programs write
	links   []link.Link    // to what follows processes
	faded   time.Duration  // when counts of busy guests were made fade, CLOCK_MONOTONIC; 0 if never
	watcher *watch.Watcher // of all that sets hardware breakpoints
	drained chan struct{}  // closed when Run has returned

	running   atomic.Bool   // everything is attached and recorded
	refused   atomic.Uint64 // processes that Choose found no room for
	nameCount atomic.Int64  // frames that were asked for, and whose names are kept

	mu          sync.Mutex
	table       map[int]*fold.Process // by pid: who has it now
	windows     map[*Window]struct{}  // open
	contexts    int                   // of all windows
	closing     map[*Window]struct{}  // closed, and not yet named
	dirty       map[*fold.Process]struct{}
	urgent      bool            // what is in dirty must not wait
	waiting     []chan struct{} // flushes that wait
	received    receivedCounts
	discarded   map[string]uint64
	codeLoads   uint64
	oldest      uint64        // time of the oldest record since the last drain, or noTime
	lag         time.Duration // its age when the ring had been drained
	observed    observedCounts
	sample      bpf.Sample        // scratch of the drainer
	observation bpf.Observation   // likewise
	stack       []target.RawFrame // scratch of the drainer
}

func (o *Options) maxContexts() int { return cmp.Or(o.MaxContexts, DefaultMaxContexts) }

const noTime = ^uint64(0)

type receivedCounts struct {
	samples, events, unknown, folded uint64
}

// New loads and attaches everything and looks at the processes that run already. Nothing ticks before Run.
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
	a := &Agent{
		opt: opt, root: opt.Proc, log: log, pool: proc.NewPool(proc.PoolOptions{}), began: monotonic(),
		drained: make(chan struct{}), oldest: noTime,
		table: map[int]*fold.Process{}, dirty: map[*fold.Process]struct{}{},
		windows: map[*Window]struct{}{}, closing: map[*Window]struct{}{},
		discarded: noDiscards(),
		observed:  observedCounts{discarded: noEventDiscards()},
	}
	if err := checkPIDs(opt.Proc, opt.PIDs); err != nil {
		return nil, err
	}
	if err := attach.CheckRing("/sys"); err != nil {
		return nil, err
	}
	if a.objects, err = bpf.Load(bpf.Options{
		FilterByPID: opt.Filter || len(opt.PIDs) > 0, RingBytes: opt.RingBytes,
		Interrupting: opt.Calls.interrupting() || opt.Events.Counters(),
		Contexts:     kernelModes[opt.Contexts], ConfirmLevels: opt.ConfirmLevels, LeaveUnknown: opt.LeaveUnknown, CheckContexts: opt.CheckContexts,
	}); err != nil {
		return nil, explainLoad(err)
	}
	attaching := proc.NewPool(library.PoolOptions)
	a.watcher = watch.New(opt.Proc)
	a.resolver = target.NewResolver(target.Config{Root: a.root, Runtimes: runtimes.Table(), Log: a.log, Objects: a.objects, Pool: a.pool, Attaching: attaching})
	a.hints = a.resolver.LoadSymbols()
	defer func() {
		if err != nil {
			a.Close()
		}
	}()
	if host, err := opt.Proc.HostPIDs(); err == nil && !host {
		const hint = "the agent is not in the host's PID namespace: processes have no names, and process ids select other processes; " +
			"run it on the host, or with --pid=host (hostPID: true)"
		a.log.Warn(hint)
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
	if a.ring, err = ring.NewReader(a.objects.Events, a.objects.NmiEvents); err != nil {
		return nil, fmt.Errorf("open event stream: %w", err)
	}
	if err := a.openSources(attaching); err != nil {
		return nil, err
	}
	a.joiner = a.newJoiner(a.objects.ChainRates, a.objects.SetSteady)
	if opt.Settle != nil {
		if err := opt.Settle(); err != nil {
			a.log.Warn("cannot drop privileges that are no longer needed", "err", err)
		}
	}
	for _, source := range a.sources.ending() {
		a.resolver.Follow(source)
	}
	a.resolver.Start(namingWorkers)
	a.discover(ctx)
	return a, nil
}

// openSources opens what the options ask for. Probes of events are attached in that pool.
func (a *Agent) openSources(attaching *proc.Pool) error {
	ticks, err := newTicks(a)
	if err != nil {
		return err
	}
	a.sources.first = []source{ticks}
	if opt := a.opt.Events; opt != nil {
		if a.events, err = newEventSource(a, *opt, attaching); err != nil {
			return err
		}
		a.sources.first = []source{a.events, ticks}
		if opt.MonitorEnters {
			enters, err := newMonitorEnters(a)
			if err != nil {
				return err
			}
			a.sources.then = append(a.sources.then, enters)
		}
	}
	switch opt := a.opt.Calls; {
	case opt == nil:
	case opt.Exact != NotExact:
		a.sources.then = append(a.sources.then, newExactEngine(a, opt.Exact))
	default:
		if a.engines, err = newCallEngines(a, opt.withDefaults()); err != nil {
			return err
		}
		a.sources.then = append(a.sources.then, a.engines)
	}
	return nil
}

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
	upkeep := time.NewTicker(upkeepInterval)
	defer upkeep.Stop()
	for {
		select {
		case err := <-drained:
			return errors.Join(err, a.sources.stop())
		case err := <-a.sources.failed():
			return end(err)
		case <-upkeep.C:
			if err := a.sources.each(source.refresh); err != nil {
				a.log.Warn("cannot follow CPUs that went online or offline", "err", err)
			}
			a.sweep()
		case <-ctx.Done():
			return end(nil)
		}
	}
}

// Open begins a window over these processes, nil for all.
func (a *Agent) Open(pids []int) *Window {
	w := newWindow(a, nil)
	if len(pids) > 0 {
		w.pids = map[int]bool{}
		for _, pid := range pids {
			w.pids[pid] = true
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	w.start, w.before = time.Now(), a.snapshot()
	a.windows[w] = struct{}{}
	return w
}

// Follow hands one window after the other to observe, each of that length, until ctx ends. Every sample is in exactly
// one of them; what the last one holds when ctx ends is dropped. If observe panics, that is counted and logged, and costs that
// window: what is in it comes from processes.
func (a *Agent) Follow(ctx context.Context, length time.Duration, observe func(*profile.Profile)) error {
	tick := time.NewTicker(length)
	defer tick.Stop()
	w := a.Open(nil)
	defer func() { a.drop(w) }()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		next, p, err := w.Next(ctx)
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("close window: %w", err)
		}
		if err != nil {
			return nil
		}
		w = next
		if ctx.Err() != nil {
			return nil
		}
		a.hand(p, observe)
	}
}

// hand calls observe with a profile, and counts and logs its panic.
func (a *Agent) hand(p *profile.Profile, observe func(*profile.Profile)) {
	err := proc.Catch(func() error {
		observe(p)
		return nil
	})
	if err != nil {
		a.resolver.CountFailure(target.StageObserve)
		a.log.Error("the agent failed to count a window; please report this", "err", err, "stack", target.StackOf(err))
	}
}

// Collect opens a window, closes it after d or when ctx ends, and returns what it holds.
func (a *Agent) Collect(ctx context.Context, d time.Duration, pids []int) (*profile.Profile, error) {
	for source := range a.sources.all() {
		source.expect(d)
	}
	w := a.Open(pids)
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return w.Close(context.WithoutCancel(ctx))
}

// Guests is how many VMs are attached now.
func (a *Agent) Guests() int { return a.resolver.VMs() }

// period is the CPU time that one sample stands for.
func (a *Agent) period() time.Duration { return time.Second / time.Duration(a.opt.Frequency) }

// Close takes everything out of the kernel. Run must have returned, or never have been called.
func (a *Agent) Close() error {
	errs := []error{a.sources.each(source.endRequests)}
	a.resolver.Stop()
	errs = append(errs, a.resolver.Close(), a.sources.each(source.close))
	for _, l := range a.links {
		errs = append(errs, l.Close())
	}
	if a.ring != nil {
		errs = append(errs, a.ring.Close())
	}
	errs = append(errs, a.objects.Close())
	return errors.Join(errs...)
}
