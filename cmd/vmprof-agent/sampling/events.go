// Package sampling has the flags of record and serve that say what is sampled, and how: events,
// calls, calling contexts, the slowest calls of a method, and the clock. Each group has methods
// Add, which defines the flags, Check or Read, which reads them, and Apply, which has an agent do
// what they say.
package sampling

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/vmprof-agent/vmprof-agent/agent"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/engines"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/events"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/breakpoint"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/valueprobe"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/cli"
)

// Flags are the flags of record and serve that say what is recorded.
type Flags struct {
	Names  []string
	probes []string
	budget string
	callFlags
	Breakpoints breakpoint.Policy

	// What is recorded, once check has read it.
	Time, Calls bool
	Events      events.Options
}

// Names are what -e can be, in the order in which files are written.
func Names() []string {
	names := []string{"cpu", "calls"}
	for kind := range profile.EventKinds {
		names = append(names, kind.String())
	}
	return names
}

// Add defines the flags.
func (e *Flags) Add(fs *pflag.FlagSet) {
	fs.StringSliceVarP(&e.Names, "event", "e", []string{"cpu"}, "`EVENT`s to record, comma-separated")
	e.callFlags.add(fs)
	fs.StringVar(&e.budget, "budget", "1%", "limit events, calls to CPU `SHARE`")
	fs.StringArrayVar(&e.probes, "probe", nil, "read values at `SPEC`: see help probes")
	fs.BoolVar(&e.Events.Wakers, "wakers", false, "offcpu, wall: record who ended each wait")
	fs.BoolVar(&e.Events.MonitorEnters, "monitor-enters", false,
		"lock: estimate uncontended lock acquisitions (x86-64)")
	fs.TextVar(&e.Breakpoints, "breakpoints", breakpoint.Auto,
		"set breakpoints `WHEN`: auto (not in VMs), always, never")
	fs.BoolVar(&e.Events.ExactAllocations, "exact-alloc", false,
		"alloc: count every object; needs -XX:+DTraceAllocProbes")
	cli.Advanced(fs, cli.GroupBursts, "breakpoints")
	cli.Advanced(fs, cli.GroupExact, "monitor-enters", "exact-alloc")
}

// Check reads what the flags say.
func (e *Flags) Check(fs *pflag.FlagSet) error {
	for _, name := range e.Names {
		if !e.Choose(name) {
			return cli.Misuse(fmt.Sprintf("-e %s: choose one or several of %s", name, strings.Join(Names(), ", ")))
		}
	}
	share, err := ParseShare(e.budget)
	switch {
	case err != nil:
		return cli.Misuse(fmt.Sprintf("--budget %s: %v", e.budget, err))
	case fs.Changed("budget") && !e.Calls && !e.Events.Any() && !fs.Changed("count") && !fs.Changed("slow"):
		return cli.Misuse("--budget limits calls, events, --count and --slow, and none of them is recorded; " +
			"to make CPU samples cheaper, lower -F")
	case e.Events.ExactAllocations && !e.Events.Kinds[profile.Allocations]:
		return cli.Misuse("--exact-alloc needs -e alloc")
	}
	if e.Events.Wakers && !e.Events.Waits() {
		return cli.Misuse("--wakers needs -e offcpu or -e wall")
	}
	if e.Events.MonitorEnters && !e.Events.Kinds[profile.Locks] {
		return cli.Misuse("--monitor-enters needs -e lock")
	}
	if fs.Changed("breakpoints") && !e.Calls && !e.Events.MonitorEnters && !fs.Changed("count") && !fs.Changed("slow") {
		return cli.Misuse("--breakpoints needs -e calls, --count, --slow, or -e lock --monitor-enters")
	}
	if err := e.checkProbes(); err != nil {
		return err
	}
	e.callFlags.options.Budget, e.Events.Budget = share, share
	return e.callFlags.check(fs, e.Calls, e.Calls && !e.Time && (!e.Events.Any() || e.exactObjects()))
}

// exactObjects reports whether allocations are all that is recorded besides the contexts of all
// calls, and each one is.
func (e *Flags) exactObjects() bool {
	for kind, on := range e.Events.Kinds {
		if on && profile.EventKind(kind) != profile.Allocations {
			return false
		}
	}
	return e.Events.ExactAllocations && e.callFlags.Exact == "contexts"
}

// checkProbes reads the specs of values.
func (e *Flags) checkProbes() error {
	values := e.Events.Kinds[profile.Values]
	switch {
	case len(e.probes) > 0 && !values:
		return cli.Misuse("--probe needs -e value")
	case len(e.probes) == 0 && values:
		return cli.Misuse("-e value needs a --probe: vmprof-agent probes -p PID lists the probes of a process")
	}
	for _, text := range e.probes {
		spec, err := valueprobe.Parse(text)
		if err != nil {
			return cli.Misuse(fmt.Sprintf("--probe %s: %v", text, err))
		}
		e.Events.Values = append(e.Events.Values, spec)
	}
	return nil
}

// Choose has something recorded.
func (e *Flags) Choose(name string) bool {
	switch name {
	case "cpu":
		e.Time = true
		return true
	case "calls":
		e.Calls = true
		return true
	}
	for kind := range profile.EventKinds {
		if kind.String() == name {
			e.Events.Kinds[kind] = true
			return true
		}
	}
	return false
}

// Apply has the agent do what the flags say.
func (e *Flags) Apply(to *agent.Options) {
	to.NoTime = !e.Time
	to.Breakpoints = e.Breakpoints
	if e.Events.Any() {
		to.Events = &e.Events
	}
	if !e.Calls {
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

// A Part of what is recorded has a file of its own.
type Part struct {
	Name    string // for -e
	Content sink.Content
}

// Each are the parts of windows: those of -e, in their order.
func (e *Flags) Each() (parts []Part) {
	if e.Time {
		parts = append(parts, Part{"cpu", sink.Time})
	}
	if e.Calls {
		parts = append(parts, Part{"calls", sink.CallCounts})
	}
	for kind, on := range e.Events.Kinds {
		if kind := profile.EventKind(kind); on {
			parts = append(parts, Part{kind.String(), sink.OfEvents(kind)})
		}
	}
	return parts
}

// Parts are what is recorded, file by file: time and calls share one.
func (e *Flags) Parts() []Part {
	parts := e.Each()
	if e.Time && e.Calls {
		parts = slices.Delete(parts, 1, 2)
		parts[0].Content |= sink.CallCounts
	}
	return parts
}

// ParseShare parses "1%" or "0.01", a share of up to a half.
func ParseShare(s string) (float64, error) {
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

// Help lists what -e takes.
func Help() string {
	var b strings.Builder
	line := func(name, help string) { fmt.Fprintf(&b, "  %-14s %s\n", name, help) }
	line("cpu", "hot methods")
	line("calls", "call graph with counts")
	for kind := range profile.EventKinds {
		line(kind.String(), kind.Describe().Help)
	}
	return b.String()
}
