package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/agent/events"
	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	"github.com/spf13/pflag"

	"github.com/vmprof-agent/vmprof-agent/agent"
	"github.com/vmprof-agent/vmprof-agent/agent/attach"
	"github.com/vmprof-agent/vmprof-agent/agent/engines"
	"github.com/vmprof-agent/vmprof-agent/agent/sink"
	"github.com/vmprof-agent/vmprof-agent/agent/valueprobe"
)

// eventFlags are the flags of record and serve that say what is recorded.
type eventFlags struct {
	names  []string
	probes []string
	budget string
	callFlags
	breakpoints attach.BreakpointPolicy

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
	fs.StringVar(&e.budget, "budget", "1%", "CPU `SHARE` for events and calls")
	fs.StringArrayVar(&e.probes, "probe", nil, "read values at `SPEC`: see help probes")
	fs.BoolVar(&e.events.MonitorEnters, "monitor-enters", false, "lock: estimate uncontended lock acquisitions (x86-64)")
	fs.TextVar(&e.breakpoints, "breakpoints", attach.BreakpointsAuto, "set breakpoints `WHEN`: auto (not in VMs), always, never")
	fs.BoolVar(&e.events.ExactAllocations, "exact-alloc", false, "alloc: count every object; needs -XX:+DTraceAllocProbes")
	advanced(fs, groupBursts, "breakpoints")
	advanced(fs, groupExact, "monitor-enters", "exact-alloc")
}

// check reads what the flags say.
func (e *eventFlags) check(fs *pflag.FlagSet) error {
	for _, name := range e.names {
		if !e.choose(name) {
			return usageError(fmt.Sprintf("-e %s: choose one or several of %s", name, strings.Join(eventNames(), ", ")))
		}
	}
	share, err := parseShare(e.budget)
	switch {
	case err != nil:
		return usageError(fmt.Sprintf("--budget %s: %v", e.budget, err))
	case fs.Changed("budget") && !e.calls && !e.events.Any():
		return usageError("--budget is about calls and events: how much CPU time samples take follows from -F")
	case e.events.ExactAllocations && !e.events.Kinds[profile.Allocations]:
		return usageError("--exact-alloc is about allocations: give it -e alloc")
	}
	if e.events.MonitorEnters && !e.events.Kinds[profile.Locks] {
		return usageError("--monitor-enters is about locks: give it -e lock")
	}
	if fs.Changed("breakpoints") && !e.calls && !e.events.MonitorEnters {
		return usageError("--breakpoints is about calls and monitor enters: give it -e calls, or -e lock --monitor-enters")
	}
	if err := e.checkProbes(); err != nil {
		return err
	}
	e.callFlags.options.Budget, e.events.Budget = share, share
	return e.callFlags.check(fs, e.calls, e.calls && !e.time && !e.events.Any())
}

// checkProbes reads the specs of values.
func (e *eventFlags) checkProbes() error {
	values := e.events.Kinds[profile.Values]
	switch {
	case len(e.probes) > 0 && !values:
		return usageError("--probe is about values: give it -e value")
	case len(e.probes) == 0 && values:
		return usageError("-e value needs a --probe: vmprof-agent probes -p PID lists what a process offers")
	}
	for _, text := range e.probes {
		spec, err := valueprobe.Parse(text)
		if err != nil {
			return usageError(fmt.Sprintf("--probe %s: %v", text, err))
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
