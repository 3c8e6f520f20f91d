package agent

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/vmprof-agent/vmprof-agent/agent/attach"
	"github.com/vmprof-agent/vmprof-agent/agent/probesite"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/elffile"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot"
)

// eventProbes are the probes in guests' libraries that tell of events. A library is attached once, for all processes that
// map it; the kernel takes the probes away when the agent ends, however it ends.
type eventProbes struct {
	agent   *Agent
	opt     EventOptions
	objects *bpf.ProbeObjects
	uprobes attach.Uprobes
	trap    atomic.Int64 // ns: what a hit takes of a guest beside its program
	// attached is when a plan was attached last, in ns of CLOCK_MONOTONIC.
	attached atomic.Int64

	exit    link.Link   // forgets what is known of threads that end
	perf    *perfEvents // nil if none are wanted
	watches []*valueWatch
	values  valueSites
	covers  coverages
	draw    func(n int) int // a number from 0 to n-1, by chance

	mu      sync.Mutex
	plans   []*attachedPlan
	cookies uint32        // given out
	telling bool          // hits are told; before, nobody would read of them
	used    guestTimes    // when rates were last set
	fresh   bool          // processes were attached since then
	cpus    float64       // that processes use
	now     time.Duration // of the governor, CLOCK_MONOTONIC
	record  time.Duration // what a record took when there were some last
	spent   bpf.Counts    // then
}

func newEventProbes(a *Agent, opt EventOptions) (*eventProbes, error) {
	if opt.Budget == 0 {
		opt.Budget = DefaultBudget
	}
	e := &eventProbes{agent: a, opt: opt, uprobes: attach.NewUprobes(), used: guestTimes{}, draw: rand.IntN}
	e.trap.Store(int64(usualTrap))
	for _, spec := range opt.Values {
		e.watches = append(e.watches, &valueWatch{spec: spec, files: map[symbolize.FileKey]struct{}{}})
	}
	var err error
	if e.objects, err = a.objects.LoadProbes(e.uprobes.Multi()); err != nil {
		return nil, explainLoad(err)
	}
	if e.exit, err = link.AttachTracing(link.TracingOptions{Program: e.objects.ThreadExit}); err != nil {
		return nil, errors.Join(fmt.Errorf("follow the ends of threads: %w", err), e.objects.Close())
	}
	if e.perf, err = e.newPerfEvents(); err != nil {
		return nil, errors.Join(err, e.exit.Close(), e.objects.Close())
	}
	if e.perf != nil {
		e.plans = append(e.plans, e.perfPlans()...)
	}
	return e, nil
}

// attach attaches to lib what it has of what is recorded, and says what it does not have.
func (e *eventProbes) attach(lib *elffile.File, f *os.File) (lacks []string) {
	finder := probesite.New(lib, f)
	for _, plan := range eventPlans(e.objects, finder) {
		if !e.wants(&plan) {
			continue
		}
		if err := e.attachPlan(plan, finder, f); err != nil {
			lacks = append(lacks, fmt.Sprintf("%s are not recorded: %v", plan.of, err))
			e.agent.log.Warn("events of JVMs are not recorded", "events", plan.of, "library", f.Name(), "err", err)
		}
	}
	return lacks
}

func (e *eventProbes) wants(plan *eventPlan) bool {
	if plan.kind == Pauses && (e.opt.Kinds[Faults] || e.opt.Kinds[Allocations]) {
		return true // objects move while Java threads stand still, and allocation buffers are taken away
	}
	return e.opt.Kinds[plan.kind] && (!plan.exact || e.opt.ExactAllocations)
}

// attachPlan attaches all probes of a plan, or none.
func (e *eventProbes) attachPlan(plan eventPlan, finder *probesite.Finder, f *os.File) error {
	file, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		return fmt.Errorf("keep library open: %w", err)
	}
	p := &attachedPlan{eventPlan: plan, file: file, every: 1}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := p.find(finder, e.register); err != nil {
		return errors.Join(err, file.Close())
	}
	if err := e.appear(p, monotonic()); err != nil {
		return errors.Join(err, file.Close())
	}
	e.plans = append(e.plans, p)
	e.attached.Store(int64(monotonic()))
	return nil
}

var errTooManyProbes = fmt.Errorf("more than %d probes of events are attached: restart the agent to forget libraries that are gone", bpf.MaxProbes)

// register gives out a cookie; mu is held.
func (e *eventProbes) register() (uint32, error) {
	if e.cookies >= bpf.MaxProbes {
		return 0, errTooManyProbes
	}
	e.cookies++
	return e.cookies - 1, nil
}

// setRate tells the kernel side of how many hits of a plan's probes one is recorded; mu is held.
func (e *eventProbes) setRate(p *attachedPlan) error {
	rate := bpf.ProbeRate{Turn: p.turn}
	if e.telling && e.opt.Kinds[p.kind] && !p.silent() {
		rate.Every = p.every
	}
	for _, cookie := range p.cookies {
		if err := e.objects.Probes.Put(cookie, rate); err != nil {
			return fmt.Errorf("set the rate of a probe: %w", err)
		}
	}
	return nil
}

// tell has hits told from now on, or not any more.
func (e *eventProbes) tell(telling bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.telling = telling
	if telling {
		if err := e.perf.start(); err != nil {
			return err
		}
	} else if err := e.perf.stop(); err != nil {
		return err
	}
	for _, p := range e.plans {
		if err := e.setRate(p); err != nil {
			return err
		}
	}
	return nil
}

// announce tells the kernel side what objects of p's VM look like.
func (e *eventProbes) announce(p *process, l *hotspot.Layout, serial uint32) error {
	if !l.HasObjects {
		return nil // said among what the layout lacks
	}
	h := kernelHeap(&l.Objects)
	h.Serial = serial
	if err := e.objects.Heaps.Update(uint32(p.pid), h, ebpf.UpdateAny); err != nil {
		return fmt.Errorf("announce heap to the kernel side: %w", err)
	}
	return nil
}

// withdraw has the kernel side forget the objects of p's VM, but not of one that has the pid now.
func (e *eventProbes) withdraw(p *process, serial uint32) {
	var h bpf.HotspotHeap
	if e.objects.Heaps.Lookup(uint32(p.pid), &h) == nil && h.Serial == serial {
		e.objects.Heaps.Delete(uint32(p.pid)) // it may be gone by now, which is as well
	}
}

func (e *eventProbes) close() error {
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
	return errors.Join(append(errs, e.perf.close(), e.objects.Close())...)
}
