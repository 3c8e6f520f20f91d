package engines

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/budget"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls/hotspot"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/source"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/guest/runtimes"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// A fakeEngine has a name.
type fakeEngine struct {
	calls.Engine
	name string
}

func (f fakeEngine) Name() string    { return f.name }
func (f fakeEngine) Notes() []string { return nil }

// testEngines returns Engines that run no engine yet, without a kernel side and without workers,
// and an open window.
func testEngines() (*Engines, *fold.Window) {
	log := slog.New(slog.DiscardHandler)
	e := &Engines{rates: map[string]profile.Rate{}, counts: counts{discarded: noCallDiscards()}}
	e.Services = &source.Services{Log: log, Resolver: guest.NewResolver(guest.Config{Runtimes: runtimes.Table(),
		Log: log}), Period: time.Second / 99}
	state := fold.NewState(fold.StateOptions{MaxContexts: 1 << 20,
		Submit: func(p *guest.Process) { e.Resolver.Submit(p) }, Flush: e.Flush})
	e.Owner = fold.NewOwner(state, func(err error) { panic(err) })
	return e, e.openWindow()
}

// state returns the State without a loan: nothing else runs in these tests.
func (e *Engines) state() (s *fold.State) {
	e.Owner.Do(func(own *fold.State) { s = own })
	return s
}

func (e *Engines) openWindow() *fold.Window {
	w := fold.NewWindow(nil)
	e.state().Open(w)
	return w
}

// runFake runs an engine that has only its name and its row of the table.
func (e *Engines) runFake(name string) *engine {
	return e.run(specOf(e.opt, name), started{engine: fakeEngine{name: name}})
}

// notingEngines runs engines of these names.
func notingEngines(opt Options, names ...string) *Engines {
	e, _ := testEngines()
	e.opt = opt.WithDefaults()
	for _, name := range names {
		e.choices = append(e.choices, profile.Choice{Engine: name, Chosen: true, Reason: "for some"})
		e.governed = append(e.governed, &governed{engine: e.runFake(name)})
	}
	return e
}

// A running engine without calls in a profile says why.
func TestNotesOfSilence(t *testing.T) {
	e := notingEngines(Options{}, "page", "hotspot", "listener", "usdt", "branch")
	e.choices = append(e.choices, profile.Choice{Engine: "other", Reason: "it is not for this machine"})
	var closed profile.Profile
	check := func(want ...string) {
		t.Helper()
		if got := e.notes(&closed, 0); !slices.Equal(got, want) {
			t.Errorf("notes are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	check("engine page: used: for some; no calls: no process has connected",
		"engine hotspot: used: for some; no calls: no JVM was busy",
		"engine listener: used: for some; no calls: no JVM was busy, and no other VM that writes a map for perf",
		"engine usdt: used: for some; no calls: no supported interpreter is running",
		"engine branch: used: for some; no calls: no call was made while it sampled",
		"engine other: not used: it is not for this machine")
	// The engine hotspot handles JVMs, if it runs.
	e.estimator = &hotspot.Engine{}
	closed.Processes = []*profile.Process{{Runtime: "hotspot"}}
	check("engine page: used: for some; no calls: no process has connected",
		"engine hotspot: used: for some; no calls: the only JVM was not busy enough",
		"engine listener: used: for some; no calls: no VM that writes a map for perf was busy",
		"engine usdt: used: for some; no calls: no supported interpreter is running",
		"engine branch: used: for some; no calls: no call was made while it sampled",
		"engine other: not used: it is not for this machine")
	if got, want := silenceOfHotspot(e.engine(calls.Hotspot), nil, 3,
		2), "the estimate failed for 2 of 3 JVMs"; got != want {
		t.Errorf("of estimates that failed it says %q, want %q", got, want)
	}
	p := fold.NewProcess(proc.Identity{PID: 9}, false)
	p.Code.Store(&guest.JITCode{})
	e.state().Table[9] = p
	if got := silenceOfListener(e.engine(calls.Listener), e.state(), 1,
		0); got != "the only process with known compiled code was not busy enough" {
		t.Errorf("of a process with a map it says %q", got)
	}
	e.engine(calls.Page).connected = map[int]string{7: ""}
	e.engine(calls.USDT).found[&guest.Process{}] = true
	closed.Processes = []*profile.Process{{Runtime: "hotspot"}, {}, {Calls: []*profile.Calls{{Engine: "listener"}}}}
	check("engine page: used: for some; no calls: 1 process connected, but no burst sampled a call there",
		"engine hotspot: used: for some; no calls: the only JVM was not busy enough",
		"engine listener: used: for some",
		"engine usdt: used: for some; no calls: 1 sampled process, but no burst sampled a call there",
		"engine branch: used: for some; no calls: no call was made while it sampled",
		"engine other: not used: it is not for this machine")
}

// A watchingEngine is one whose watches had these outcomes.
type watchingEngine struct {
	fakeEngine
	watches calls.Watches
}

func (w watchingEngine) Watches() calls.Watches { return w.watches }
func (w watchingEngine) Cost() budget.Cost      { return budget.Cost{} }

// Lost watches of breakpoints are in the notes of profiles, and in the agent's health, for all
// engines together.
func TestWatchesOfEngines(t *testing.T) {
	e, _ := testEngines()
	if s := e.stats(&bpf.Counts{}); s.Watches != nil {
		t.Errorf("without engines: %v", s.Watches)
	}
	for name, w := range map[string]calls.Watches{
		calls.Listener: {Complete: 5, Full: 4, Void: 2, BusyThreads: 7}, calls.Hotspot: {Complete: 1, BusyThreads: 0},
	} {
		e.run(specOf(e.opt, name), started{engine: watchingEngine{fakeEngine{name: name}, w}})
	}
	want := []string{"engine listener, since the agent began: of 11 watches of breakpoints, 2 void, because the " +
		"watched code was replaced; " +
		"7 times a thread was left out of a watch, because somebody else uses its debug registers"}
	if got := e.notes(&profile.Profile{}, 0); !slices.Equal(got, want) {
		t.Errorf("notes are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	s := e.stats(&bpf.Counts{})
	all := map[string]uint64{"complete": 6, "full": 4, "void": 2, "refused": 0, "interrupted": 0, "failed": 0}
	if !maps.Equal(s.Watches, all) || s.BusyThreads != 7 {
		t.Errorf("watches %v, %d threads", s.Watches, s.BusyThreads)
	}
}

// The notes name options that do not apply to an engine, a budget that is too small for them, and
// rates that change.
func TestNotesOfRates(t *testing.T) {
	rate := func(hz, stride, samples int) profile.Rate {
		return profile.Rate{Hz: hz, Burst: profile.Burst{Stride: stride, Samples: samples}}
	}
	const last = "engine page: used: for some; the budget determines its rate; the labels stride and samples show " +
		"the last one"
	for _, test := range []struct {
		name    string
		options Options
		engines []string
		exceeds bool
		want    []string // after the lines of other engines
	}{
		{"all is free", Options{}, []string{"page"}, false, []string{last}},
		{"all is fixed", Options{Rate: rate(99, 7, 32)}, []string{"page"}, false,
			[]string{"engine page: used: for some"}},
		{"bursts are fixed", Options{Rate: rate(0, 7, 32)}, []string{"page", "hotspot"}, false, []string{
			last, "engine hotspot: --stride and --samples do not apply: the budget determines its watches"}},
		{"a stride", Options{Rate: rate(0, 7, 0)}, []string{"page", "listener"}, false, []string{
			last, "engine listener: --stride does not apply: every call of a burst traps"}},
		{"ticks alone apply", Options{Rate: rate(99, 0, 0)}, []string{"page", "hotspot", "listener"}, false,
			[]string{last}},
		{"too much is fixed", Options{Rate: rate(5000, 0, 0)}, []string{"page"}, true, []string{last,
			"engine page: sampled in 4 of 30 s only: the fixed -F, --stride and --samples cost more than the budget " +
				"of 1%: raise --budget, or set all three to sample without a budget"}},
		{"too small a budget", Options{Budget: 0.00001}, []string{"page"}, true, []string{last,
			"engine page: sampled in 4 of 30 s only: the budget of 0.001% has no room for more: raise --budget"}},
		{"logical", Options{Logical: true}, []string{"page"}, false, []string{last,
			"--logical does not apply: only engine hotspot estimates inlined calls, and it is not used"}},
	} {
		e := notingEngines(test.options, test.engines...)
		closed := profile.Profile{Processes: []*profile.Process{{Calls: []*profile.Calls{{Engine: "page",
			Rate: rate(97, 7, 32)}}}}}
		for _, g := range e.governed {
			g.exceeds, g.sampled, g.all = test.exceeds, 4, 30
		}
		got := slices.DeleteFunc(e.notes(&closed, 0), func(note string) bool {
			return strings.Contains(note,
				"; no calls: ")
		})
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: notes are\n%s\nwant\n%s", test.name, strings.Join(got, "\n"), strings.Join(test.want, "\n"))
		}
	}
}

// The fixed part of an engine's rate is the part that applies to it.
func TestFixedRates(t *testing.T) {
	all := profile.Rate{Hz: 99, Burst: profile.Burst{Stride: 7, Samples: 32}}
	for _, test := range []struct {
		engine    string
		rate      profile.Rate
		want      profile.Rate
		unlimited bool
	}{
		{"page", all, all, true},
		{"page", profile.Rate{Hz: 99}, profile.Rate{Hz: 99}, false},
		{"usdt", profile.Rate{}, profile.Rate{}, false},
		{"hotspot", all, all, false}, // its windows follow from the budget, whatever is fixed
		{"listener", all, profile.Rate{Hz: 99, Burst: profile.Burst{Stride: 1, Samples: 32}}, true},
		{"listener", profile.Rate{}, profile.Rate{Burst: profile.Burst{Stride: 1}}, false},
	} {
		traits := TraitsOf(test.engine)
		if got, unlimited := traits.Fixed(test.rate), traits.Unlimited(test.rate); got != test.want ||
			unlimited != test.unlimited {
			t.Errorf("engine %s, %v: %v, without a budget %t; want %v, %t", test.engine, test.rate, got, unlimited,
				test.want, test.unlimited)
		}
	}
}
