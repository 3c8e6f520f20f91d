// Package probes attaches the probes for events of processes, such as allocations, lock waits and
// safepoint pauses, and opens the events of the kernel and the CPU. It finds the places of probes
// in a library, and sets how many hits are recorded so that they stay within their budget.
package probes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/budget"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/host/retry"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/library"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/elffile"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// Probes are the probes of events in the libraries of processes. A library is attached once, for
// all processes that map it, and as long as any does. The kernel removes the probes when the agent
// ends in any way.
//
// They are a guest.Follower: workers find the libraries.
type Probes struct {
	config   Config
	Options  Options
	Programs *bpf.ProbeObjects
	uprobes  attach.Uprobes
	trap     atomic.Int64 // ns of a process's CPU time that a hit takes, without the program
	// lastAttached is when a plan was attached, or got a process again, in ns of CLOCK_MONOTONIC.
	lastAttached atomic.Int64
	attached     chan struct{} // wakes the governor then

	exit      link.Link   // drops the state of threads that end
	perf      *perfEvents // nil if none are wanted
	libraries *library.Keeper[symbolize.FileKey, *guest.Process, eventLibrary]
	own       *library.Keeper[ownKey, *guest.Process, eventLibrary] // libraries of plans that observe one process
	watches   []*valueWatch
	watched   *library.Keeper[watchedKey, *guest.Process, valuePlan]
	values    valueSites
	loading   guest.PerProcess[retry.Backoff] // back-off of looking for libraries with probes whose values are wanted
	virtual   guest.PerProcess[atomic.Bool]   // virtual threads ran
	Covers    Coverages                       // when plans were observed
	draw      func(n int) int                 // a random number from 0 to n-1

	tick func(context.Context) // what the governor calls in each round; nil for nothing

	governing  sync.WaitGroup
	separating sync.WaitGroup     // gives processes plans of their own
	endGovern  context.CancelFunc // nil if they did not start

	mu        sync.Mutex
	plans     []*attachedPlan
	cookies   numbering
	recording bool               // hits are recorded; before, nobody would read them
	used      budget.Times       // CPU times when rates were last set
	fresh     bool               // processes were attached since then
	cpus      float64            // CPUs that processes use
	each      map[uint32]float64 // those that each uses, by the serial of its attachment
	// lent is the addition to a kind's share of the processes' CPU time; negative: other kinds have
	// it.
	lent       [profile.EventKinds]float64
	now        time.Duration                  // latest time of the governor, CLOCK_MONOTONIC
	record     time.Duration                  // what a record took when there were some last
	spent      bpf.Counts                     // counts at that time
	unattached map[*guest.Process]*fileProbes // they get plans of their own once the agent is attached to their VMs
	// strangers are the hits of processes that are not observed, by pid, when rates were last set.
	strangers map[uint32]uint64
	strange   []strangeTime       // the last ones
	warned    map[string]*warning // warnings that events are observed for a part of the time, by what is observed
}

// A Config is what Probes need from others.
type Config struct {
	Log       *slog.Logger
	Resolver  *guest.Resolver
	Objects   *bpf.Objects // the objects whose maps and ring the programs of probes share
	Attaching *proc.Pool   // the pool in which probes are attached
	Root      proc.Root    // where procfs is
	Filter    bool         // processes were chosen: others shall not pass probes
	// CPU times of the processes whose VMs are attached, by the serials of those
	GuestTimes func() budget.Times
	Flush      func(ctx context.Context) error // returns when all records that were emitted have been handled
	Refusal    func(error) error               // explains why the kernel refuses to load programs
}

// New loads the programs of probes. Nothing is attached before a library is found.
func New(c Config, opt Options) (*Probes, error) {
	e := &Probes{config: c, Options: opt, uprobes: attach.NewUprobes(), used: budget.Times{}, cookies: newCookies(),
		draw: rand.IntN, attached: make(chan struct{}, 1), unattached: map[*guest.Process]*fileProbes{}}
	e.trap.Store(int64(usualTrap))
	for _, spec := range opt.Values {
		e.watches = append(e.watches, &valueWatch{spec: spec, lacking: map[symbolize.FileKey]error{}})
	}
	var err error
	if e.Programs, err = c.Objects.LoadProbes(); err != nil {
		return nil, c.Refusal(err)
	}
	if e.exit, err = link.AttachTracing(link.TracingOptions{Program: e.Programs.ThreadExit}); err != nil {
		return nil, errors.Join(fmt.Errorf("follow the ends of threads: %w", err), e.Programs.Close())
	}
	if e.perf, err = e.newPerfEvents(); err != nil {
		return nil, errors.Join(err, e.exit.Close(), e.Programs.Close())
	}
	if e.perf != nil {
		e.plans = append(e.plans, e.perfPlans()...)
	}
	e.libraries = e.newLibraries(c.Attaching)
	e.own = e.newOwn(c.Attaching)
	e.watched = e.newWatched(c.Attaching)
	return e, nil
}

// Start makes hits be recorded, and governs how many, until Stop or the end of ctx.
func (e *Probes) Start(ctx context.Context) error {
	if err := e.setRecording(true); err != nil {
		return err
	}
	ctx, e.endGovern = context.WithCancel(ctx)
	e.governing.Go(func() { e.govern(ctx) })
	return nil
}

// Stop ends what Start began, even if Start failed or was not called.
func (e *Probes) Stop() {
	if e.endGovern != nil {
		e.endGovern()
		e.governing.Wait()
	}
	if err := e.setRecording(false); err != nil {
		e.config.Log.Error("cannot stop recording events", "err", err)
	}
}

// OnTick has do called in each round of the governor. It must be called before Start.
func (e *Probes) OnTick(do func(context.Context)) { e.tick = do }

// Alongside runs do in a goroutine for which Stop waits.
func (e *Probes) Alongside(do func()) { e.governing.Go(do) }

// Refresh follows CPUs that came online or went.
func (e *Probes) Refresh() error { return e.perf.refresh() }

// Maps returns the generated structs of the programs' BPF maps.
func (e *Probes) Maps() []any {
	maps := []any{e.Programs.ProbeMaps}
	if e.perf != nil {
		maps = append(maps, e.perf.objects.FaultMaps)
	}
	return maps
}

// An eventLibrary is the plans of recorded events for the library of a VM.
type eventLibrary struct {
	plans []*attachedPlan
	lacks []string // events that it does not report, one sentence each
	of    *fileProbes
}

// newLibraries returns the keeper of attached libraries of VMs.
func (e *Probes) newLibraries(pool *proc.Pool) *library.Keeper[symbolize.FileKey, *guest.Process, eventLibrary] {
	return library.New[symbolize.FileKey, *guest.Process](pool, library.Kind[eventLibrary]{
		Attach: func(lib eventLibrary, f *os.File) (eventLibrary, error) {
			if lib.of.apart {
				return lib, nil
			}
			plans, lacks := e.attach(lib.plans, f)
			lib.of.plans = plans
			return eventLibrary{plans, slices.Concat(lib.lacks, lacks), lib.of}, nil
		},
		Attached: func(lib eventLibrary) {
			if !lib.of.apart {
				e.adopt(lib.plans)
			}
		},
		Idle: func(lib eventLibrary, idle bool) {
			if !e.isApart(lib.of) {
				e.setIdle(lib.plans, idle)
			}
		},
		Detach: func(ctx context.Context, lib eventLibrary) {
			e.separating.Wait()
			e.remove(ctx, lib.plans)
		},
	})
}

// Attaching attaches the recorded events to the library of p's VM, and returns what it does not
// report. The error is library.ErrAttaching while attaching takes long.
func (e *Probes) Attaching(p *guest.Process, m *proc.Mapping, lib guest.MappedFile) (lacks []string, err error) {
	used, err := e.libraries.Use(p, p.PID, lib.Key, lib.File, func(found *eventLibrary) (bool, error) {
		read, err := guest.Call(e.config.Resolver, p, func() (eventLibrary, error) {
			file, err := elffile.Open(lib.File, lib.Key.Size)
			if err != nil {
				return eventLibrary{}, fmt.Errorf("read library of the VM: %w", err)
			}
			plans, lacks := e.find(file, lib.File)
			of := &fileProbes{key: lib.Key, plans: plans, apart: e.config.Filter && e.uprobes.FiltersByPID()}
			for _, p := range plans {
				p.files = of
			}
			return eventLibrary{plans, lacks, of}, nil
		})
		*found = read
		for _, lack := range read.lacks {
			e.config.Log.Warn("events of JVMs are not recorded", "library", m.Path, "why", lack)
		}
		return len(read.plans) > 0, err
	})
	lacks = used.lacks
	switch {
	case err != nil || !e.isApart(used.of):
	case !e.config.Filter && p.Attachment.Load() == 0:
		e.later(p, used.of)
		return lacks, nil
	default:
		if used, err = e.attachOwn(p, lib.File, used.of); err == nil {
			lacks = slices.Concat(lacks, used.lacks)
		}
	}
	e.noteUser(used.plans, p, m.Path)
	return lacks, err
}

// noteUser notes that p uses the library of plans, which it has at that path.
func (e *Probes) noteUser(plans []*attachedPlan, p *guest.Process, path string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, plan := range plans {
		plan.library = path
		if !plan.removed && !slices.Contains(plan.users, p) { // forgetUser does not see plans that were removed
			plan.users = append(plan.users, p)
			plan.cover.Follow(p.Identity(), proc.Monotonic())
		}
	}
}

// FollowsEnds reports whether probes say what p's threads have allocated when they end.
func (e *Probes) FollowsEnds(p *guest.Process) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.ContainsFunc(e.plans, func(plan *attachedPlan) bool {
		return plan.ends &&
			slices.Contains(plan.users, p)
	})
}

// forgetUser is the inverse of noteUser.
func (e *Probes) forgetUser(p *guest.Process) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.unattached, p)
	for _, plan := range e.plans {
		plan.users = slices.DeleteFunc(plan.users, func(user *guest.Process) bool { return user == p })
		plan.cover.Leave(p.Identity(), proc.Monotonic())
	}
}

// Look finds probes whose values are wanted.
func (e *Probes) Look(p *guest.Process) {
	e.config.Resolver.Begin(guest.StageValues, p)
	e.lookForValues(p)
	if e.Options.Kinds[profile.Locks] || e.Options.Waits() {
		e.lookForVirtual(p)
	}
	if e.Options.Kinds[profile.Barriers] {
		noteBarriers(p)
	}
}

// noteBarriers adds a note to profiles of p if its VM has no write barrier that a probe can
// observe.
func noteBarriers(p *guest.Process) {
	g := p.VM()
	if g == nil {
		return
	}
	cards, err := guest.As[vmruntime.CardReader](g)
	if err == nil {
		_, err = cards.Cards()
	}
	if err != nil {
		p.Note(fmt.Sprintf("process %d: write barriers are not recorded: %v", p.PID, err))
	}
}

// Leave records that p has ended: libraries that no other process maps are detached after a while.
func (e *Probes) Leave(p *guest.Process) {
	e.forgetUser(p)
	e.libraries.Leave(p)
	e.own.Leave(p)
	e.watched.Leave(p)
	e.loading.Forget(p)
	e.virtual.Forget(p)
}

// Announce sends the layout of objects in p's VM to the kernel side.
func (e *Probes) Announce(p *guest.Process, heap *bpf.HotspotHeap, serial uint32) error {
	if heap == nil {
		return nil // the VM's notes report it
	}
	h := *heap
	h.Serial = serial
	if err := e.Programs.Heaps.Update(uint32(p.PID), &h, ebpf.UpdateAny); err != nil {
		return fmt.Errorf("register the heap in the kernel: %w", err)
	}
	return nil
}

// Withdraw makes the kernel side forget the objects of p's VM, but not those of another process
// with its pid.
func (e *Probes) Withdraw(p *guest.Process, serial uint32) {
	var h bpf.HotspotHeap
	if e.Programs.Heaps.Lookup(uint32(p.PID), &h) == nil && h.Serial == serial {
		e.Programs.Heaps.Delete(uint32(p.PID)) // it may already be gone
	}
}

// Close removes all probes. No worker may still run.
func (e *Probes) Close() error {
	e.own.Close()
	e.separating.Wait()
	e.libraries.Close()
	e.watched.Close()
	e.mu.Lock()
	defer e.mu.Unlock()
	var errs []error
	for _, p := range e.plans {
		errs = append(errs, p.close())
	}
	e.plans = nil
	if e.exit != nil {
		errs = append(errs, e.exit.Close())
	}
	return errors.Join(append(errs, e.perf.close(), e.Programs.Close())...)
}
