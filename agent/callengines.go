package agent

import (
	"errors"
	"fmt"
	"io"
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
	"github.com/vmprof-agent/vmprof-agent/agent/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/target"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// An engineSpec is all that the agent knows of a call engine apart from the interfaces of package calls.
type engineSpec struct {
	name         string
	purpose      string // why one would want it
	experimental bool   // only if it is asked for
	try          func(*callEngines) (startedEngine, error)

	calls.Traits
	maxHz        int   // of its ticks; 0 means budget.MaxHz
	needTop      bool  // it wants to know which code is busy: see source.needTop
	interrupting bool  // its programs interrupt others: see bpf.Options
	record       uint8 // bpf.Call.Engine or bpf.NamedCall.Engine of its records; 0 if it has none

	// fold folds a record of code versions; agent.mu is held. It is nil for an engine that names its calls by itself.
	fold func(*Agent, *fold.Process, *bpf.Call)
	// guests reports whether the budget is a share of a process's time; agent.mu is held.
	guests func(*callEngine, *fold.Process) bool
	// silence is why the engine runs and has no calls in a profile with so many JVMs, of so many of which the estimate
	// failed; agent.mu is held.
	silence func(own *callEngine, jvms, failed int) string
}

// engineTable lists all call engines, in the order in which they are tried.
func engineTable(o CallOptions) []engineSpec {
	return []engineSpec{
		{
			name: calls.Page, purpose: "for VMs with vmprof.h, which connect to " + o.GuestSocket, try: tryPage,
			record: bpf.EnginePage, guests: (*callEngine).isConnected, silence: silenceOfPage,
		},
		{
			name: calls.Hotspot, purpose: "for stock JVMs", try: tryHotspot,
			Traits: calls.Traits{SelfGoverned: true, Inlined: true}, needTop: true,
			guests: (*callEngine).isAttached, silence: silenceOfHotspot,
		},
		{
			name: calls.Listener, purpose: "for compiled code of VMs that write a map for perf, and of JVMs if engine hotspot is not used", try: tryListener,
			Traits: calls.Traits{Stride: calls.EveryCall}, needTop: true,
			record: bpf.EngineListener, fold: (*Agent).foldListened, guests: (*callEngine).isObserved, silence: silenceOfListener,
		},
		{
			name: calls.USDT, purpose: "for interpreters with function-entry probes: PHP with USE_ZEND_DTRACE=1, Python, Ruby", try: tryUSDT,
			maxHz: usdt.MaxHz, record: bpf.EngineUSDT, guests: (*callEngine).isFound, silence: silenceOfUSDT,
		},
		{
			name: calls.Branch, purpose: "for all code", experimental: true, try: tryBranch,
			Traits: calls.Traits{Stride: calls.InARow}, interrupting: true,
			record: bpf.EngineBranch, fold: (*Agent).foldBranched, guests: (*callEngine).isAny, silence: silenceOfBranch,
		},
	}
}

// A startedEngine is what trying an engine gives.
type startedEngine struct {
	engine  calls.Engine
	limit   string    // what it cannot do here, and why; "" for nothing
	beneath io.Closer // what it works with, which is closed when all engines are; nil for nothing
}

func tryPage(e *callEngines) (startedEngine, error) {
	a := e.agent
	engine, err := page.New(page.Options{Objects: a.objects, Socket: e.opt.GuestSocket, Wanted: a.wanted, Proc: a.root, Log: a.log})
	return startedEngine{engine: engine}, err
}

func tryHotspot(e *callEngines) (s startedEngine, err error) {
	a := e.agent
	var l *listener.Listener // without breakpoints the estimates rest on time and counters alone
	if unsafe := a.opt.Breakpoints.Check(); unsafe == nil {
		if l, err = listener.Open(a.objects, a.watcher); err != nil {
			return s, err
		}
	} else if runtime.GOARCH != "amd64" {
		return s, unsafe
	} else {
		s.limit = "estimates are unchecked: " + unsafe.Error()
	}
	s.engine = newEstimator(a, l, e.opt.Budget, e.opt.Logical)
	return s, nil
}

func tryListener(e *callEngines) (s startedEngine, err error) {
	a := e.agent
	if err := a.opt.Breakpoints.Check(); err != nil {
		return s, err
	}
	l, err := listener.Open(a.objects, a.watcher)
	if err != nil {
		return s, err
	}
	return startedEngine{engine: listener.NewEngine(l, &hotCode{agent: a, engines: e}, a.log), beneath: l}, nil
}

func tryUSDT(e *callEngines) (startedEngine, error) {
	a := e.agent
	engine, err := usdt.Try(usdt.Options{Objects: a.objects, Proc: a.root, Pool: a.pool, Log: a.log})
	return startedEngine{engine: engine}, err
}

func tryBranch(e *callEngines) (startedEngine, error) {
	engine, err := branch.Try(e.agent.objects, os.DirFS("/"))
	return startedEngine{engine: engine}, err
}

// CallEngines are the names of all engines, in the order in which they are tried.
func CallEngines() (names []string) {
	for _, spec := range engineTable(CallOptions{}) {
		names = append(names, spec.name)
	}
	return names
}

// CallTraits are the traits of the engine of a name; the zero value if there is none.
func CallTraits(engine string) calls.Traits { return specOf(CallOptions{}, engine).Traits }

// specOf is the row of an engine in the table; the zero value if there is none.
func specOf(o CallOptions, engine string) engineSpec {
	table := engineTable(o)
	if i := slices.IndexFunc(table, func(s engineSpec) bool { return s.name == engine }); i >= 0 {
		return table[i]
	}
	return engineSpec{}
}

// declined is why an engine is not to be tried with these options; "" if it is.
func (s *engineSpec) declined(o CallOptions) string {
	switch {
	case o.Engine == s.name:
		return ""
	case o.Engine != "" && o.Engine != calls.Auto:
		return "--engine=" + o.Engine + " was given"
	case s.experimental:
		return "experimental, untested on hardware: use --engine=" + s.name + " to try it"
	}
	return ""
}

// callEngines sample calls for an agent: those of all engines that this machine lets work.
type callEngines struct {
	passive
	agent     *Agent
	opt       CallOptions
	choices   []profile.Choice
	running   []*callEngine
	estimator callEstimator // of those that run; nil if none estimates
	top       bool          // one of them has needTop

	governed  []*governed
	endGovern func() // nil if they did not start

	// Guarded by agent.mu.
	rates  map[string]profile.Rate // the last one with ticks, as profiles are labelled
	counts callCounts
}

// A callEngine is an engine that runs.
type callEngine struct {
	calls.Engine
	engineSpec
	engines *callEngines
	beneath io.Closer // nil for nothing
	add     calls.Add // what it folds
	shown   target.PerProcess[showing]

	// Guarded by agent.mu.
	connected map[int]string           // guests of a calls.Connector when rates were set last: their runtimes, by pid
	found     map[*target.Process]bool // guests of a calls.Finder
}

// newCallEngines starts the engines that opt asks for and that work here. It fails if none does.
func newCallEngines(a *Agent, opt CallOptions) (*callEngines, error) {
	e := &callEngines{agent: a, opt: opt, rates: map[string]profile.Rate{}, counts: callCounts{discarded: noCallDiscards()}}
	for _, spec := range engineTable(opt) {
		choice := profile.Choice{Engine: spec.name, Reason: spec.declined(opt)}
		if choice.Reason != "" {
			e.choices = append(e.choices, choice)
			continue
		}
		started, err := spec.try(e)
		if err == nil {
			choice.Chosen, choice.Reason = true, spec.purpose
			if started.limit != "" {
				choice.Reason += "; " + started.limit
			}
			e.run(spec, started)
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

// run adds an engine that was started.
func (e *callEngines) run(spec engineSpec, s startedEngine) *callEngine {
	own := &callEngine{
		Engine: s.engine, engineSpec: spec, engines: e, beneath: s.beneath, add: e.adder(s.engine.Name()), found: map[*target.Process]bool{},
	}
	e.running = append(e.running, own)
	if estimator, ok := s.engine.(callEstimator); ok {
		e.estimator = estimator
	}
	e.top = e.top || spec.needTop
	return own
}

// engine is the one of a name; nil if it does not run.
func (e *callEngines) engine(name string) *callEngine {
	if i := slices.IndexFunc(e.running, func(own *callEngine) bool { return own.Name() == name }); i >= 0 {
		return e.running[i]
	}
	return nil
}

// CallChoices says which engines sample calls, and why or why not.
func (a *Agent) CallChoices() []profile.Choice {
	if a.engines == nil {
		return nil
	}
	return slices.Clone(a.engines.choices)
}

// needTop implements source.
func (e *callEngines) needTop() bool { return e.top }

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
	for _, own := range e.running {
		if unweigher, ok := own.Engine.(calls.Unweigher); ok {
			for cause, n := range unweigher.Unweighed() {
				s.Discarded[cause] += n
			}
		}
	}
	return s
}

// end takes all engines out of kernel and guests.
func (e *callEngines) end() error {
	var errs []error
	for _, own := range e.running {
		if err := own.Close(); err != nil {
			errs = append(errs, fmt.Errorf("end engine %s: %w", own.Name(), err))
		}
	}
	for _, own := range e.running {
		if own.beneath != nil {
			errs = append(errs, own.beneath.Close())
		}
	}
	return errors.Join(errs...)
}
