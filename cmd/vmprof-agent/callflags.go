package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/vmprof-agent/vmprof-agent/agent"
	"github.com/vmprof-agent/vmprof-agent/agent/calls"
	"github.com/vmprof-agent/vmprof-agent/agent/sink"
)

// eventFlags are the flags of record and serve that say what is recorded, and how calls are sampled.
type eventFlags struct {
	events  []string
	options agent.CallOptions
	budget  string
	exact   string

	time, calls bool // what is recorded, once check has read it
}

// add defines the flags.
func (e *eventFlags) add(fs *pflag.FlagSet) {
	o := &e.options
	fs.StringSliceVarP(&e.events, "event", "e", []string{"cpu"}, "what to record: cpu (where time goes), calls (how often calls are made), or both")
	fs.StringVar(&o.Engine, "engine", calls.Auto, "calls: how they are sampled: auto, or one of "+strings.Join(agent.CallEngines(), ", "))
	fs.StringVar(&e.budget, "budget", "1%", "calls: CPU time of the guests that sampling may take")
	fs.IntVar(&o.Rate.Stride, "stride", 0, "calls: sample every Nth call of a burst (default: follows from the budget)")
	fs.IntVar(&o.Rate.Samples, "samples", 0, "calls: samples of a burst (default: follows from the budget)")
	fs.BoolVar(&o.Logical, "logical", false, "calls: also those that HotSpot inlined, as far as its own counters tell")
	fs.BoolVar(&o.GuestWrites, "allow-guest-writes", false, "calls: let the semaphore engine write two bytes in PHP processes")
	fs.StringVar(&o.GuestSocket, "guest-socket", agent.DefaultGuestSocket, "calls: where cooperating guests connect")
}

// addExact defines the flag for counting every call, which no one wants always on.
func (e *eventFlags) addExact(fs *pflag.FlagSet) {
	fs.StringVar(&e.exact, "exact", "", "calls: count every one, of a JVM that runs with -XX:+DTraceMethodProbes (a hundred times slower): contexts (whole stacks) or edges (with the places of calls)")
	fs.Lookup("exact").NoOptDefVal = "contexts"
}

// exacts are the values of --exact.
var exacts = map[string]agent.Exact{"": agent.NotExact, "contexts": agent.ExactContexts, "edges": agent.ExactEdges}

// check reads what the flags say.
func (e *eventFlags) check(fs *pflag.FlagSet) error {
	for _, name := range e.events {
		switch name {
		case "cpu":
			e.time = true
		case "calls":
			e.calls = true
		default:
			return usageError(fmt.Sprintf("-e %s: choose cpu, calls or cpu,calls", name))
		}
	}
	if !e.calls {
		for _, name := range []string{"engine", "budget", "stride", "samples", "logical", "allow-guest-writes", "guest-socket"} {
			if fs.Changed(name) {
				return usageError("--" + name + " is about calls: give it -e calls, or -e cpu,calls")
			}
		}
	}
	o := &e.options
	if o.Engine != calls.Auto && !slices.Contains(agent.CallEngines(), o.Engine) {
		return usageError(fmt.Sprintf("--engine %s: choose auto, or one of %s", o.Engine, strings.Join(agent.CallEngines(), ", ")))
	}
	var err error
	if o.Budget, err = parseShare(e.budget); err != nil {
		return usageError(fmt.Sprintf("--budget %s: %v", e.budget, err))
	}
	if o.Rate.Stride < 0 || o.Rate.Stride > maxStride || o.Rate.Samples < 0 || o.Rate.Samples > maxSamples {
		return usageError(fmt.Sprintf("--stride needs a number from 1 to %d, --samples one from 1 to %d", maxStride, maxSamples))
	}
	exact, known := exacts[e.exact]
	switch {
	case !known:
		return usageError(fmt.Sprintf("--exact=%s: choose contexts or edges", e.exact))
	case exact != agent.NotExact && (e.time || !e.calls):
		return usageError("--exact counts calls: give it -e calls")
	}
	o.Exact = exact
	if err := e.checkTogether(fs); err != nil {
		return err
	}
	if f := fs.Lookup("frequency"); f.Changed {
		o.Rate.Hz, err = fs.GetInt("frequency")
	}
	return err
}

// checkTogether refuses flags that can have no effect beside others. Where --engine=auto leaves it open, the profile says
// which engines a flag does not apply to.
func (e *eventFlags) checkTogether(fs *pflag.FlagSet) error {
	if e.options.Exact != agent.NotExact {
		for _, name := range []string{"engine", "budget", "stride", "samples", "logical"} {
			if fs.Changed(name) {
				return usageError(fmt.Sprintf("--%s is about sampling, and --exact counts every call: leave one of them out", name))
			}
		}
	}
	engine := e.options.Engine
	for _, c := range []struct {
		flag string
		off  bool // for that engine
		why  string
	}{
		{"stride", engine == "hotspot", "which listens in windows that follow from --budget"},
		{"samples", engine == "hotspot", "which listens in windows that follow from --budget"},
		{"stride", engine == "listener", "for which every call of a burst traps"},
		{"logical", engine != calls.Auto && engine != "hotspot", "which knows nothing of inlined calls"},
	} {
		if c.off && fs.Changed(c.flag) {
			return usageError(fmt.Sprintf("--%s does not apply to --engine=%s, %s: leave one of them out", c.flag, engine, c.why))
		}
	}
	return nil
}

// apply has the agent do what the flags say.
func (e *eventFlags) apply(to *agent.Options) {
	to.NoTime = !e.time
	if !e.calls {
		return
	}
	to.Calls = &e.options
	if e.options.Rate.Hz == 0 {
		to.Frequency = agent.CallFrequency(e.options.Budget)
	}
}

// content is what profiles are to have.
func (e *eventFlags) content() (c sink.Content) {
	if e.time {
		c |= sink.Time
	}
	if e.calls {
		c |= sink.CallCounts
	}
	return c
}

// Bounds of bursts: beyond the largest of the paper's Table 2.
const (
	maxStride  = 1 << 20
	maxSamples = 1 << 17
)

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
