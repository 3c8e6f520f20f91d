package engines

import (
	"io"
	"os"
	"runtime"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls/branch"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls/hotspot"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls/listener"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls/page"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls/usdt"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// An engineSpec is everything that the agent knows about a call engine apart from the interfaces of
// package calls.
type engineSpec struct {
	name         string
	purpose      string // why one would use it
	experimental bool   // only on request
	socket       bool   // VMs connect to it at Options.GuestSocket
	try          func(*Engines) (started, error)

	calls.Traits
	maxHz        int   // highest frequency of its ticks; 0 means budget.MaxHz
	needsHot     bool  // it needs to know which code is busy: see fold.State.Hot
	interrupting bool  // its programs interrupt others: see bpf.Options
	record       uint8 // bpf.Call.Engine or bpf.NamedCall.Engine of its records; 0 if it has none

	// fold folds a record of code versions. It is nil for an engine that names its calls by itself.
	fold func(*engine, *fold.State, *fold.Process, *bpf.Call)
	// guests reports whether a process's time counts towards the budget.
	guests func(*engine, *fold.State, *fold.Process) bool
	// silence says why the running engine has no calls in a profile with that many JVMs, for failed
	// of which the estimate failed.
	silence func(own *engine, s *fold.State, jvms, failed int) string
}

// engineTable lists all call engines, in the order in which they are tried.
func engineTable(o Options) []engineSpec {
	return []engineSpec{
		{
			name: calls.Page, purpose: "for VMs with vmprof.h, which connect to " + o.GuestSocket, socket: true,
			try:    tryPage,
			record: bpf.EnginePage, guests: (*engine).isConnected, silence: silenceOfPage,
		},
		{
			name: calls.Hotspot, purpose: "for stock JVMs", try: tryHotspot,
			Traits: calls.Traits{SelfGoverned: true, Inlined: true}, needsHot: true,
			guests: (*engine).isAttached, silence: silenceOfHotspot,
		},
		{
			name: calls.Listener, purpose: "for compiled code of VMs that write a map for perf, and of JVMs if " +
				"engine hotspot is not used", try: tryListener,
			Traits: calls.Traits{Stride: calls.EveryCall}, needsHot: true,
			record: bpf.EngineListener, fold: (*engine).foldListened, guests: (*engine).isObserved,
			silence: silenceOfListener,
		},
		{
			name: calls.USDT, purpose: "for interpreters with function-entry probes: PHP with USE_ZEND_DTRACE=1, " +
				"Python, Ruby", try: tryUSDT,
			maxHz: usdt.MaxHz, record: bpf.EngineUSDT, guests: (*engine).isFound, silence: silenceOfUSDT,
		},
		{
			name: calls.Branch, purpose: "for all code", experimental: true, try: tryBranch,
			Traits: calls.Traits{Stride: calls.InARow}, interrupting: true,
			record: bpf.EngineBranch, fold: (*engine).foldBranched, guests: (*engine).isAny, silence: silenceOfBranch,
		},
	}
}

// A started is the result of starting an engine.
type started struct {
	engine  calls.Engine
	limit   string    // what it cannot do here, and why; "" for nothing
	beneath io.Closer // what it depends on, closed after all engines; nil for nothing
}

func tryPage(e *Engines) (started, error) {
	engine, err := page.New(page.Options{Objects: e.Objects, Socket: e.opt.GuestSocket, Wanted: e.Wanted, Proc: e.Root,
		Log: e.Log, CountRead: e.Resolver.CountRead})
	return started{engine: engine}, err
}

func tryHotspot(e *Engines) (s started, err error) {
	var l *listener.Listener // without breakpoints the estimates use time and counters alone
	if unsafe := e.Breakpoints.Check(); unsafe == nil {
		if l, err = listener.Open(e.Objects, e.Watcher); err != nil {
			return s, err
		}
	} else if runtime.GOARCH != "amd64" {
		return s, unsafe
	} else {
		s.limit = "estimates are unchecked: " + unsafe.Error()
	}
	s.engine = hotspot.Open(e.Services, l, e.opt.Budget, e.opt.Logical)
	return s, nil
}

func tryListener(e *Engines) (s started, err error) {
	if err := e.Breakpoints.Check(); err != nil {
		return s, err
	}
	l, err := listener.Open(e.Objects, e.Watcher)
	if err != nil {
		return s, err
	}
	return started{engine: listener.NewEngine(l, &hotCode{engines: e, name: calls.Listener}, e.Log), beneath: l}, nil
}

func tryUSDT(e *Engines) (started, error) {
	engine, err := usdt.Try(usdt.Options{Objects: e.Objects, Proc: e.Root, Pool: e.Pool, Log: e.Log,
		CountRead: e.Resolver.CountRead})
	return started{engine: engine}, err
}

func tryBranch(e *Engines) (started, error) {
	engine, err := branch.Try(e.Objects, os.DirFS("/"))
	return started{engine: engine}, err
}

// Names returns the names of all engines, in the order in which they are tried.
func Names() (names []string) {
	for _, spec := range engineTable(Options{}) {
		names = append(names, spec.name)
	}
	return names
}

// inlining returns the names of the engines that report inlined calls.
func inlining() (names []string) {
	for _, spec := range engineTable(Options{}) {
		if spec.Inlined {
			names = append(names, spec.name)
		}
	}
	return names
}

// TraitsOf returns the traits of the engine with a name; the zero value if there is none.
func TraitsOf(engine string) calls.Traits { return specOf(Options{}, engine).Traits }

// specOf returns the row of an engine in the table; the zero value if there is none.
func specOf(o Options, engine string) engineSpec {
	table := engineTable(o)
	if i := slices.IndexFunc(table, func(s engineSpec) bool { return s.name == engine }); i >= 0 {
		return table[i]
	}
	return engineSpec{}
}

// declined says why an engine is not tried with these options; "" if it is.
func (s *engineSpec) declined(o Options) string {
	switch {
	case o.Engine == s.name:
		return ""
	case o.Engine != "" && o.Engine != calls.Auto:
		return "--engine=" + o.Engine + " was given"
	case s.experimental:
		return "experimental, not verified on hardware: use --engine=" + s.name + " to try it"
	}
	return ""
}
