package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/vmprof-agent/vmprof-agent/agent"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/engines"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/events"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/breakpoint"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/valueprobe"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
)

// callFlags are the flags of record and serve that say how calls are sampled.
type callFlags struct {
	options engines.Options
	exact   string
}

// add defines the flags.
func (c *callFlags) add(fs *pflag.FlagSet) {
	o := &c.options
	fs.StringVar(&o.Engine, "engine", calls.Auto, "call `ENGINE`: auto, "+strings.Join(engines.Names(), ", "))
	fs.IntVar(&o.Rate.Stride, "stride", 0, "sample every `N`th call of a burst (default from --budget)")
	fs.IntVar(&o.Rate.Samples, "samples", 0, "take `N` samples in a burst (default from --budget)")
	fs.BoolVar(&o.Logical, "logical", false, "include inlined calls, from HotSpot's counters")
	fs.StringVar(&o.GuestSocket, "guest-socket", engines.DefaultGuestSocket, "socket `PATH` for VMs with vmprof.h")
	advanced(fs, groupBursts, "engine", "stride", "samples", "logical", "guest-socket")
}

// addExact defines the flag for counting every call, which no one wants always on.
func (c *callFlags) addExact(fs *pflag.FlagSet) {
	fs.StringVar(&c.exact, "exact", "", "count every call, `HOW`: contexts, edges, counters")
	fs.Lookup("exact").NoOptDefVal = "contexts"
	advanced(fs, groupExact, "exact")
}

// exacts are the values of --exact.
var exacts = map[string]engines.Exact{"": engines.NotExact, "contexts": engines.ExactContexts,
	"edges": engines.ExactEdges, "counters": engines.ExactCounters}

// check reads what the flags say. With alone nothing but calls is recorded; without wanted no calls
// are.
func (c *callFlags) check(fs *pflag.FlagSet, wanted, alone bool) error {
	if !wanted {
		for _, name := range []string{"engine", "stride", "samples", "logical", "guest-socket"} {
			if fs.Changed(name) {
				return misuse("--" + name + " needs -e calls or -e cpu,calls")
			}
		}
	}
	o := &c.options
	if o.Engine != calls.Auto && !slices.Contains(engines.Names(), o.Engine) {
		return misuse(fmt.Sprintf("--engine %s: choose auto, or one of %s", o.Engine,
			strings.Join(engines.Names(), ", ")))
	}
	if o.Rate.Stride < 0 || o.Rate.Stride > maxStride || o.Rate.Samples < 0 || o.Rate.Samples > maxSamples {
		return misuse(fmt.Sprintf("--stride needs a number from 1 to %d, --samples one from 1 to %d", maxStride,
			maxSamples))
	}
	exact, known := exacts[c.exact]
	switch {
	case !known:
		return misuse(fmt.Sprintf("--exact=%s: choose contexts, edges or counters", c.exact))
	case exact != engines.NotExact && !alone:
		return misuse("--exact needs -e calls, without other events; --exact=contexts also takes -e calls,alloc " +
			"--exact-alloc")
	}
	o.Exact = exact
	if err := c.checkTogether(fs); err != nil {
		return err
	}
	var err error
	if f := fs.Lookup("frequency"); f.Changed {
		o.Rate.Hz, err = fs.GetInt("frequency")
	}
	return err
}

// checkTogether refuses flags that can have no effect together with others. Where --engine=auto
// leaves it open, the profile says which engines a flag does not apply to.
func (c *callFlags) checkTogether(fs *pflag.FlagSet) error {
	if c.options.Exact != engines.NotExact {
		for _, name := range []string{"engine", "budget", "stride", "samples", "logical"} {
			if fs.Changed(name) {
				return misuse(fmt.Sprintf("--%s controls sampling, but --exact counts every call: remove one of "+
					"them", name))
			}
		}
	}
	engine := c.options.Engine
	traits := engines.TraitsOf(engine)
	for _, r := range []struct {
		flag string
		off  bool // for that engine
		why  string
	}{
		{"stride", traits.SelfGoverned, "which derives its watches from --budget"},
		{"samples", traits.SelfGoverned, "which derives its watches from --budget"},
		{"stride", traits.Stride == calls.EveryCall, "which traps on every call of a burst"},
		{"logical", engine != calls.Auto && !traits.Inlined, "which does not observe inlined calls"},
	} {
		if r.off && fs.Changed(r.flag) {
			return misuse(fmt.Sprintf("--%s does not apply to --engine=%s, %s: remove one of them", r.flag, engine,
				r.why))
		}
	}
	return nil
}

// Bounds of bursts: beyond the largest of the paper's Table 2.
const (
	maxStride  = 1 << 20
	maxSamples = 1 << 17
)

// contextFlags are the flags of record and serve that say how calling contexts are found.
type contextFlags struct {
	mode   string
	every  uint32
	levels uint32
	check  bool
	leave  bool

	context profile.ContextMode // once check has read it
}

// add defines the flags.
func (c *contextFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&c.mode, "context", profile.ContextWalk.String(), "context `MODE`: walk, partial or chain")
	fs.Uint32Var(&c.every, "walk-every", 0, "chain: walk one in `N` known callers (default adaptive)")
	fs.BoolVar(&c.leave, "leave-unknown", false, "chain: do not walk every unknown caller, only one in N")
	fs.Uint32Var(&c.levels, "confirm-levels", 0, "partial: match `N` frames with the last sample (default 4)")
	fs.BoolVar(&c.check, "check-contexts", false, "partial, chain: also walk every stack; report accuracy")
	advanced(fs, groupContexts, "context", "walk-every", "leave-unknown", "confirm-levels", "check-contexts")
}

// read reads what the flags say, and refuses those that can have no effect.
func (c *contextFlags) read(fs *pflag.FlagSet, exact bool) error {
	var err error
	if c.context, err = profile.ParseContextMode(c.mode); err != nil {
		return misuse("--context: " + err.Error())
	}
	if exact && c.context != profile.ContextWalk {
		return misuse("--exact records every context: remove --context")
	}
	for flag, off := range map[string]bool{
		"leave-unknown":  c.context != profile.ContextChain,
		"walk-every":     c.context != profile.ContextChain,
		"confirm-levels": c.context != profile.ContextPartial,
		"check-contexts": c.context == profile.ContextWalk,
	} {
		if off && fs.Changed(flag) {
			return misuse("--" + flag + " does not apply to --context=" + c.mode + ": remove one of them")
		}
	}
	if c.levels > maxConfirmLevels {
		return misuse("--confirm-levels needs a number from 1 to 64")
	}
	return nil
}

const maxConfirmLevels = 64

// apply has the agent do what the flags say.
func (c *contextFlags) apply(to *agent.Options) {
	to.Contexts, to.WalkEvery, to.ConfirmLevels, to.CheckContexts = c.context, c.every, c.levels, c.check
	to.LeaveUnknown = c.leave
}

// eventFlags are the flags of record and serve that say what is recorded.
type eventFlags struct {
	names  []string
	probes []string
	budget string
	callFlags
	breakpoints breakpoint.Policy

	// What is recorded, once check has read it.
	time, calls bool
	events      events.Options
}

// eventNames are what -e can be, in the order in which files are written.
func eventNames() []string {
	names := []string{"cpu", "calls"}
	for kind := range profile.EventKinds {
		names = append(names, kind.String())
	}
	return names
}

// add defines the flags.
func (e *eventFlags) add(fs *pflag.FlagSet) {
	fs.StringSliceVarP(&e.names, "event", "e", []string{"cpu"}, "`EVENT`s to record, comma-separated")
	e.callFlags.add(fs)
	fs.StringVar(&e.budget, "budget", "1%", "limit events, calls to CPU `SHARE`")
	fs.StringArrayVar(&e.probes, "probe", nil, "read values at `SPEC`: see help probes")
	fs.BoolVar(&e.events.Wakers, "wakers", false, "offcpu, wall: record who ended each wait")
	fs.BoolVar(&e.events.MonitorEnters, "monitor-enters", false,
		"lock: estimate uncontended lock acquisitions (x86-64)")
	fs.TextVar(&e.breakpoints, "breakpoints", breakpoint.Auto,
		"set breakpoints `WHEN`: auto (not in VMs), always, never")
	fs.BoolVar(&e.events.ExactAllocations, "exact-alloc", false,
		"alloc: count every object; needs -XX:+DTraceAllocProbes")
	advanced(fs, groupBursts, "breakpoints")
	advanced(fs, groupExact, "monitor-enters", "exact-alloc")
}

// check reads what the flags say.
func (e *eventFlags) check(fs *pflag.FlagSet) error {
	for _, name := range e.names {
		if !e.choose(name) {
			return misuse(fmt.Sprintf("-e %s: choose one or several of %s", name, strings.Join(eventNames(), ", ")))
		}
	}
	share, err := parseShare(e.budget)
	switch {
	case err != nil:
		return misuse(fmt.Sprintf("--budget %s: %v", e.budget, err))
	case fs.Changed("budget") && !e.calls && !e.events.Any() && !fs.Changed("count") && !fs.Changed("slow"):
		return misuse("--budget needs -e calls, events or --count; -F determines the cost of CPU samples")
	case e.events.ExactAllocations && !e.events.Kinds[profile.Allocations]:
		return misuse("--exact-alloc needs -e alloc")
	}
	if e.events.Wakers && !e.events.Waits() {
		return misuse("--wakers needs -e offcpu or -e wall")
	}
	if e.events.MonitorEnters && !e.events.Kinds[profile.Locks] {
		return misuse("--monitor-enters needs -e lock")
	}
	if fs.Changed("breakpoints") && !e.calls && !e.events.MonitorEnters && !fs.Changed("count") && !fs.Changed("slow") {
		return misuse("--breakpoints needs -e calls, --count, --slow, or -e lock --monitor-enters")
	}
	if err := e.checkProbes(); err != nil {
		return err
	}
	e.callFlags.options.Budget, e.events.Budget = share, share
	return e.callFlags.check(fs, e.calls, e.calls && !e.time && (!e.events.Any() || e.exactObjects()))
}

// exactObjects reports whether allocations are all that is recorded besides the contexts of all
// calls, and each one is.
func (e *eventFlags) exactObjects() bool {
	for kind, on := range e.events.Kinds {
		if on && profile.EventKind(kind) != profile.Allocations {
			return false
		}
	}
	return e.events.ExactAllocations && e.callFlags.exact == "contexts"
}

// checkProbes reads the specs of values.
func (e *eventFlags) checkProbes() error {
	values := e.events.Kinds[profile.Values]
	switch {
	case len(e.probes) > 0 && !values:
		return misuse("--probe needs -e value")
	case len(e.probes) == 0 && values:
		return misuse("-e value needs a --probe: vmprof-agent probes -p PID lists the probes of a process")
	}
	for _, text := range e.probes {
		spec, err := valueprobe.Parse(text)
		if err != nil {
			return misuse(fmt.Sprintf("--probe %s: %v", text, err))
		}
		e.events.Values = append(e.events.Values, spec)
	}
	return nil
}

// choose has something recorded.
func (e *eventFlags) choose(name string) bool {
	switch name {
	case "cpu":
		e.time = true
		return true
	case "calls":
		e.calls = true
		return true
	}
	for kind := range profile.EventKinds {
		if kind.String() == name {
			e.events.Kinds[kind] = true
			return true
		}
	}
	return false
}

// apply has the agent do what the flags say.
func (e *eventFlags) apply(to *agent.Options) {
	to.NoTime = !e.time
	to.Breakpoints = e.breakpoints
	if e.events.Any() {
		to.Events = &e.events
	}
	if !e.calls {
		return
	}
	to.Calls = &e.callFlags.options
	if to.Calls.Exact != engines.NotExact && to.Events != nil { // what counts the calls counts the objects
		to.Calls.ExactObjects, to.Events = true, nil
	}
	if to.Calls.Rate.Hz == 0 {
		to.Frequency = engines.Frequency(to.Calls.Budget)
	}
}

// A part is what goes into a file of its own.
type part struct {
	name    string
	content sink.Content
}

// parts are what is recorded, file by file.
func (e *eventFlags) parts() (parts []part) {
	if c := e.content(); c != 0 {
		name := "cpu"
		if !e.time {
			name = "calls"
		}
		parts = append(parts, part{name, c})
	}
	for kind, on := range e.events.Kinds {
		if kind := profile.EventKind(kind); on {
			parts = append(parts, part{kind.String(), sink.OfEvents(kind)})
		}
	}
	return parts
}

// content is what profiles of time and calls are to have.
func (e *eventFlags) content() (c sink.Content) {
	if e.time {
		c |= sink.Time
	}
	if e.calls {
		c |= sink.CallCounts
	}
	return c
}

// parseShare parses "1%" or "0.01", a share of up to a half.
func parseShare(s string) (float64, error) {
	text, percent := strings.CutSuffix(strings.TrimSpace(s), "%")
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, fmt.Errorf("want a share such as 1%% or 0.01")
	}
	if percent {
		v /= 100
	}
	if !(v > 0 && v <= 0.5) { // nor NaN
		return 0, fmt.Errorf("want a share above 0 and up to 50%%")
	}
	return v, nil
}

// eventsHelp lists what -e takes.
func eventsHelp() string {
	var b strings.Builder
	line := func(name, help string) { fmt.Fprintf(&b, "  %-14s %s\n", name, help) }
	line("cpu", "hot methods")
	line("calls", "call graph with counts")
	for kind := range profile.EventKinds {
		line(kind.String(), kind.Describe().Help)
	}
	return b.String()
}
