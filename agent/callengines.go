package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/calls"
	"github.com/vmprof-agent/vmprof-agent/agent/calls/branch"
	"github.com/vmprof-agent/vmprof-agent/agent/calls/listener"
	"github.com/vmprof-agent/vmprof-agent/agent/calls/page"
	"github.com/vmprof-agent/vmprof-agent/agent/calls/usdt"
	"github.com/vmprof-agent/vmprof-agent/agent/retry"
	"github.com/vmprof-agent/vmprof-agent/agent/target"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// callEngines sample calls for an agent: those of all engines that this machine lets work.
type callEngines struct {
	passive
	agent   *Agent
	opt     CallOptions
	choices []profile.Choice
	running []calls.Engine
	limits  map[string]string // what engines that run cannot do here, and why

	// What each engine names its calls by; nil if it does not run.
	page      *page.Engine
	usdt      *usdt.Engine
	listener  *listener.Listener // of the engine of the same name
	estimator *estimator
	branch    *branch.Engine

	governed  []*governed
	endGovern func() // nil if they did not start

	// Guarded by agent.mu.
	pages  map[int]bool             // pids of guests that share a page
	probed map[*target.Process]bool // guests of the usdt engine
	shown  target.PerProcess[showing]
	rates  map[string]profile.Rate // the last one with ticks, as profiles are labelled
	counts callCounts
}

// callCounts accounts for received calls: received == folded + sum(discarded) + those that wait for the end of their
// burst, none after flush.
type callCounts struct {
	received, folded uint64
	taken            uint64 // of the received ones, those that did not come through the ring
	discarded        map[string]uint64
}

// Why user space drops a call that it received, beside discardMalformed and discardNoWindow.
const (
	discardUnnamed     = "unnamed"     // of a method that the guest never told of
	discardStale       = "stale"       // of a VM that the process no longer runs
	discardFull        = "graph_full"  // an edge beyond maxEdges
	discardCalibration = "calibration" // of a burst that was taken to measure the cost of a hit; counted by the engine
	discardTime        = "time"        // of a burst whose time cannot be right; likewise
)

// noCallDiscards holds every reason, so that a series exists before its first failure.
func noCallDiscards() map[string]uint64 {
	return map[string]uint64{profile.Malformed: 0, profile.Failed: 0, profile.NoWindow: 0, discardUnnamed: 0, discardStale: 0, discardFull: 0,
		discardCalibration: 0, discardTime: 0}
}

// newCallEngines starts the engines that opt asks for and that work here. It fails if none does.
func newCallEngines(a *Agent, opt CallOptions) (*callEngines, error) {
	e := &callEngines{agent: a, opt: opt, rates: map[string]profile.Rate{}, probed: map[*target.Process]bool{}, counts: callCounts{discarded: noCallDiscards()}}
	for _, c := range e.candidates() {
		choice := profile.Choice{Engine: c.name}
		if opt.Engine != "" && opt.Engine != calls.Auto && opt.Engine != c.name {
			choice.Reason = "--engine=" + opt.Engine + " was given"
			e.choices = append(e.choices, choice)
			continue
		}
		if c.experimental && opt.Engine != c.name {
			choice.Reason = "experimental, as it never ran on a CPU that has what it needs: give --engine=" + c.name + " to try it"
			e.choices = append(e.choices, choice)
			continue
		}
		engine, err := c.try()
		if err == nil {
			choice.Chosen, choice.Reason = true, c.does
			if limit := e.limits[c.name]; limit != "" {
				choice.Reason += "; " + limit
			}
			e.running = append(e.running, engine)
		} else {
			choice.Reason = err.Error()
		}
		e.choices = append(e.choices, choice)
	}
	if len(e.running) > 0 {
		return e, nil
	}
	err := errors.New("no call engine works here")
	for _, c := range e.choices {
		if opt.Engine == "" || opt.Engine == calls.Auto || opt.Engine == c.Engine {
			err = fmt.Errorf("%w; %v", err, c)
		}
	}
	return nil, err
}

// CallChoices says which engines sample calls, and why or why not.
func (a *Agent) CallChoices() []profile.Choice {
	if a.engines == nil {
		return nil
	}
	return slices.Clone(a.engines.choices)
}

// A candidate is an engine that may work here.
type candidate struct {
	name         string
	does         string // why one would want it
	experimental bool   // only if it is asked for
	try          func() (calls.Engine, error)
}

func (e *callEngines) candidates() []candidate {
	a := e.agent
	return []candidate{
		{"page", "for guests that cooperate, which connect to " + e.opt.GuestSocket, false, func() (calls.Engine, error) {
			engine, err := page.New(page.Options{
				Objects: a.objects, Socket: e.opt.GuestSocket, Wanted: a.wanted, Proc: a.root, Log: a.log,
			})
			if err != nil {
				return nil, err
			}
			e.page = engine
			return engine, nil
		}},
		{"hotspot", "for stock JVMs", false, func() (calls.Engine, error) {
			// Without breakpoints the estimates rest on time and counters alone.
			var l *listener.Listener
			if unsafe := a.opt.Breakpoints.Check(); unsafe == nil {
				var err error
				if l, err = listener.Open(a.objects, a.watcher); err != nil {
					return nil, err
				}
			} else if runtime.GOARCH != "amd64" {
				return nil, unsafe
			} else {
				e.limits = map[string]string{"hotspot": "estimates are not checked: " + unsafe.Error()}
			}
			e.estimator = newEstimator(a, l, e.opt.Budget, e.opt.Logical)
			return e.estimator, nil
		}},
		{"listener", "for compiled code of VMs that write a map for perf, and of JVMs if engine hotspot is not used", false, func() (calls.Engine, error) {
			if err := a.opt.Breakpoints.Check(); err != nil {
				return nil, err
			}
			l, err := listener.Open(a.objects, a.watcher)
			if err != nil {
				return nil, err
			}
			e.listener = l
			return listener.NewEngine(l, &hotCode{agent: a, engines: e}, a.log), nil
		}},
		{usdt.Name, "for interpreters with a probe at every function: PHP with USE_ZEND_DTRACE=1, Python, Ruby", false, func() (calls.Engine, error) {
			engine, err := usdt.Try(usdt.Options{Objects: a.objects, Proc: a.root, Pool: a.pool, Log: a.log})
			if err != nil {
				return nil, err
			}
			e.usdt = engine
			return engine, nil
		}},
		{"branch", "for everything that makes calls", true, func() (calls.Engine, error) {
			engine, err := branch.Try(a.objects, os.DirFS("/"))
			if err != nil {
				return nil, err
			}
			e.branch = engine
			return engine, nil
		}},
	}
}

// wanted tells whether the kernel side samples a process.
func (a *Agent) wanted(pid int) bool {
	if !a.opt.Filter && len(a.opt.PIDs) == 0 {
		return true
	}
	var one uint8
	return a.objects.Pids.Lookup(uint32(pid), &one) == nil
}

// Look shows a process to the engines that must find their guests by themselves. What is not ready yet is shown again.
func (e *callEngines) Look(p *target.Process) {
	if e.usdt == nil || p.Exited.Load() || !e.agent.wanted(p.PID) {
		return
	}
	s := e.shown.Of(p)
	if s.done {
		return
	}
	s.done = true
	found, err := e.usdt.Look(context.Background(), p.PID)
	switch {
	case found:
		e.agent.mu.Lock()
		defer e.agent.mu.Unlock()
		e.probed[p] = true
	case errors.Is(err, vmruntime.ErrStarting):
		if s.again.First == 0 {
			s.again = showAgain
		}
		if pause, ok := s.again.Pause(); ok {
			s.done = false
			e.agent.resolver.SubmitLater(p, pause)
		}
	case err != nil:
		e.agent.log.Debug("calls of a process are not sampled", "pid", p.PID, "err", err)
	}
}

// onCall folds a call whose names are known to its engine, or that names code versions; mu is held.
func (a *Agent) onCall(c *bpf.Call) {
	e := a.engines
	p := a.process(&c.Header)
	switch {
	case c.Engine == bpf.EnginePage && e.page != nil:
		if !e.page.Fold(c, e.add("page")) {
			e.counts.discarded[discardUnnamed]++
		}
	case c.Engine == bpf.EngineListener && e.listener != nil:
		caller, callee, ok := listened(c, p.Attachment.Load())
		if !ok {
			e.counts.discarded[discardStale]++
			return
		}
		a.teachCall(p, callee, caller, c.CalleeDepth, c.CallerDepth)
		a.foldRawCall(p, "listener", caller, callee, c.ClassEpoch)
	case c.Engine == bpf.EngineBranch && e.branch != nil:
		a.foldRawCall(p, "branch", branched(c.Caller), branched(c.Callee), c.ClassEpoch)
	default:
		e.counts.discarded[profile.Malformed]++
	}
}

// needTop tells whether an engine wants to know which guest code is at work.
func (e *callEngines) needTop() bool { return e.listener != nil || e.estimator != nil }

// onNamedCall folds a call that brought its names; mu is held.
func (a *Agent) onNamedCall(c *bpf.NamedCall) {
	e := a.engines
	if e.usdt == nil {
		e.counts.discarded[profile.Malformed]++
		return
	}
	a.process(&c.Header)
	if !e.usdt.Fold(c, e.add(usdt.Name)) {
		e.counts.discarded[discardUnnamed]++
	}
}

// foldRawCall has both ends of a call named, and folds it; mu is held.
func (a *Agent) foldRawCall(p *process, engine string, caller, callee target.RawFrame, epoch uint32) {
	a.foldCall(p, func(s *callSet) bool {
		if p.want([]target.RawFrame{caller, callee}, epoch, &a.nameCount) {
			a.dirty[p] = struct{}{}
		}
		return s.addRaw(engine, caller, callee)
	})
}

// add returns what takes weighed edges of an engine; agent.mu is held when it is called.
func (e *callEngines) add(engine string) func(*bpf.Header, profile.Edge, float64) {
	return func(h *bpf.Header, edge profile.Edge, weight float64) {
		p := e.agent.table[int(h.Pid)]
		if p == nil || !e.agent.sameProcess(p, h) {
			e.counts.discarded[discardStale]++ // held for longer than its process lived: see flush
			return
		}
		e.agent.foldCall(p, func(s *callSet) bool { return s.add(engine, edge, weight) })
	}
}

// flush has engines hand out what waits for the end of its burst, because a window ends; agent.mu is held.
func (e *callEngines) flush() {
	if e.page != nil {
		e.page.Flush(e.add("page"))
	}
	if e.usdt != nil {
		e.usdt.Flush(e.add(usdt.Name))
	}
}

// foldCall adds a call to every window that wants its process; mu is held.
func (a *Agent) foldCall(p *process, add func(*callSet) bool) {
	counts := &a.engines.counts
	taken, full := false, false
	for w := range a.windows {
		if !w.wants(uint32(p.PID)) {
			continue
		}
		taken = true
		full = !add(w.callSet(p)) || full
	}
	switch {
	case !taken:
		counts.discarded[profile.NoWindow]++
	case full:
		counts.discarded[discardFull]++
	default:
		counts.folded++
	}
}

// stats of the engines since they were made; agent.mu is not held.
func (e *callEngines) stats(c *bpf.Counts) *profile.CallStats {
	s := &profile.CallStats{
		Choices: e.choices, Budget: e.opt.Budget, Costs: map[string]time.Duration{},
		Dropped: map[string]uint64{"ring_full": c[bpf.CallsDroppedRingFull], "no_memory": c[bpf.CallsDroppedNoDraft]},
		Hits:    c[bpf.CallHits], Refused: c[bpf.CallHitsRefused], Bursts: c[bpf.BurstsArmed], Skipped: c[bpf.BurstsSkipped],
	}
	if e.estimator != nil {
		s.Credibility = e.estimator.credibility()
	}
	e.agent.mu.Lock()
	defer e.agent.mu.Unlock()
	for _, g := range e.governed {
		s.Costs[g.Name()] = g.cost(e.agent).Time()
		s.GuestTime += g.time
	}
	s.Attempted = c[bpf.CallsAttempted] + e.counts.taken
	s.Delivered, s.Folded, s.Discarded, s.Rates = e.counts.received, e.counts.folded, maps.Clone(e.counts.discarded), maps.Clone(e.rates)
	if e.page != nil {
		maps.Copy(s.Discarded, e.page.Stats().Unweighed)
	}
	return s
}

// end takes all engines out of kernel and guests.
func (e *callEngines) end() error {
	var errs []error
	for _, engine := range e.running {
		if err := engine.Close(); err != nil {
			errs = append(errs, fmt.Errorf("end engine %s: %w", engine.Name(), err))
		}
	}
	if e.listener != nil {
		errs = append(errs, e.listener.Close())
	}
	return errors.Join(errs...)
}

// Leave implements follower.
func (e *callEngines) Leave(p *target.Process) { e.shown.Forget(p) }

// A showing is how far a process was shown to engines.
type showing struct {
	done  bool
	again retry.Backoff
}

// showAgain is when a process that is still starting is shown to engines again: 25 s in all.
var showAgain = retry.Backoff{First: 100 * time.Millisecond, Limit: 8}
