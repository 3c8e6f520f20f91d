// Command bench measures what profiling costs: the guest, in CPU time beside perf record -g at the
// same rate, or while events are recorded, and the agent, in CPU time, memory, time in BPF and
// bytes.
//
//	go run ./tests/bench                    # everything; some two and a half hours
//	go run ./tests/bench -short             # one guest, one rate, one kind; two minutes, and far too little to conclude from
//	go run ./tests/bench -guests Javac -rates 999
//	go run ./tests/bench -parts depth       # only what samples cost against the depth of the stack
//	go run ./tests/bench -parts events -guests H2 -kinds alloc,lock
//	go run ./tests/bench -parts growth,processes,jvms # only how the agent's own cost grows
//	go run ./tests/bench -parts paired -against OTHER # two agents at once beside the same guests: ratios
//	go run ./tests/bench -update            # also rewrites the tables in docs/measurements/performance.md that it measures
//
// It prints aims and whether they were reached, and fails only if something could not be measured:
// on another machine the figures are others.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
)

// docs is the page whose tables -update rewrites, from the root of the repository.
const docs = "docs/measurements/performance.md"

// parts are what can be measured alone, in their order.
var parts = []harness.Section[bench]{
	{
		Name: "costs", Markers: []string{"overhead", "costs"}, Plan: harness.Always(bench.costs),
		Aim: "guests pay no more than for perf; 2,000 ns a Java sample, 4,000 for javac; 64 bytes, 130 for javac; " +
			"50 MB",
	},
	{Name: "busy", Markers: []string{"busy"}, Aim: "0.7 % of a core, 0.2 % at 99 Hz; 50 MB; no sample lost",
		Plan: harness.Always(bench.busy)},
	{Name: "idle", Markers: []string{"idle"}, Aim: "0.05 % of a core, five wakings a second",
		Plan: harness.Always(bench.idle)},
	{Name: "paired", Markers: []string{"paired"}, Aim: "none", Plan: harness.Always(bench.paired)},
	{Name: "first", Markers: []string{"first"}, Aim: "0.4 s to the first named Java frame, 50 MB",
		Plan: harness.Always(bench.first)},
	{
		Name: "depth", Markers: []string{"depth", "flat"}, Plan: harness.Always(bench.depths),
		Aim: "chain costs 1,500 ns more than an empty program, and below 950 calls 1.2 times what it does below 10",
	},
	{Name: "contexts", Markers: []string{"contexts"}, Aim: "chain costs 1,500 ns more than an empty program",
		Plan: harness.Always(bench.contexts)},
	{Name: "slowdown", Markers: []string{"slowdown"}, Aim: "none", Plan: harness.Always(bench.slowdowns)},
	{Name: "loops", Markers: []string{"loops"}, Aim: "none", Plan: harness.Always(bench.loops)},
	{Name: "latency-30", Markers: []string{"latency-30"}, Aim: "none", Plan: harness.Always(latency(0.3))},
	{Name: "latency-70", Markers: []string{"latency-70"}, Aim: "none", Plan: harness.Always(latency(0.7))},
	{Name: "latency-start", Markers: []string{"latency-start"}, Aim: "none", Plan: harness.Always(bench.latencyStart)},
	{Name: "events", Markers: []string{"events", "eventcosts"}, Aim: "1 % of a guest's CPU time",
		Plan: harness.Always(bench.events)},
	{Name: "switches", Markers: []string{"switches"}, Aim: "-e offcpu takes 1 % of a guest's CPU time",
		Plan: harness.Always(bench.switches)},
	{Name: "exact", Markers: []string{"exact"}, Aim: "none", Plan: harness.Always(bench.exact)},
	{
		Name: "interrupts", Markers: []string{"interrupts"}, Plan: harness.Always(bench.interrupts),
		Aim: "samples at the kernel's tick add none",
	},
	{
		Name: "clocks", Markers: []string{"clocks"}, Plan: harness.Always(bench.clocks),
		Aim: "the profile at the kernel's tick is as close to cpu-clock's as chance allows, less a point",
	},
	{
		Name: "growth", Markers: []string{"growth"}, Plan: harness.Always(bench.growth),
		Aim: "a sample of a known stack takes 1 µs and no allocation, whatever else grows",
	},
	{Name: "processes", Markers: []string{"processes"}, Aim: "none", Plan: harness.Always(bench.processes)},
	{Name: "jvms", Markers: []string{"jvms"}, Aim: "none", Plan: harness.Always(bench.jvms)},
	{Name: "history", Markers: []string{"history"}, Aim: "a day of 20 services in 200 MB, 0.2 % of a core",
		Plan: harness.Always(bench.history)},
}

func partName(p harness.Section[bench]) string { return p.Name }

// An options is what the command line says.
type options struct {
	harness.Options
	against string // the other agent of the part paired; "" if that is this one
	guests  []string
	rates   []int
	parts   []harness.Section[bench]

	eventGuests    []string
	clockGuests    []string
	slowdownGuests []string

	kinds []eventKind
}

func main() { harness.Main("bench", run) }

func parse(args []string) (options, error) {
	var o options
	flags := o.Flags("bench", "one cold guest, one rate, one kind of events, one round or two", docs)
	guests := flags.String("guests", "Xalan,Jython,Javac,Luindex,H2",
		"programs of the suite; the parts events, clocks and slowdown have their own unless this is set")
	rates := flags.String("rates", "99,999,4000", "samples a second, of the part costs")
	flags.StringVar(&o.against, "against", "", "the built agent with which the part paired compares (default: itself)")
	names := flags.String("parts", harness.List(parts, partName), "what to measure")
	kinds := flags.String("kinds", harness.List(eventKinds, eventKindName), "what is recorded, of the part events")
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	if o.Short {
		if o.Update {
			return options{}, errors.New("-update needs a whole run: leave out -short")
		}
		*guests, *rates, *kinds = "Xalan", "999", "alloc"
	}
	o.guests, o.eventGuests, o.clockGuests, o.slowdownGuests = strings.Split(*guests, ","), defaultEventGuests,
		defaultClockGuests, defaultSlowdownGuests
	flags.Visit(func(f *flag.Flag) {
		if f.Name == "guests" {
			o.eventGuests, o.clockGuests, o.slowdownGuests = o.guests, o.guests, o.guests
		}
	})
	if o.Short {
		o.eventGuests, o.clockGuests, o.slowdownGuests = o.guests, o.guests, o.guests
	}
	for _, word := range strings.Split(*rates, ",") {
		rate, err := strconv.Atoi(word)
		if err != nil || rate < 1 {
			return options{}, fmt.Errorf("-rates: %q is no rate", word)
		}
		o.rates = append(o.rates, rate)
	}
	var err error
	if o.kinds, err = harness.Pick(eventKinds, *kinds, "kind of events", eventKindName); err != nil {
		return options{}, fmt.Errorf("-kinds: %w", err)
	}
	if o.parts, err = harness.Pick(parts, *names, "part", partName); err != nil {
		return options{}, fmt.Errorf("-parts: %w", err)
	}
	return o, nil
}

func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	jdk, err := jvm.Oldest()
	if err != nil {
		return err
	}
	return o.WithAgent(ctx, func(agent profiler.Agent, _ string) error {
		b := bench{options: o, agent: agent, jdk: jdk, out: out, how: longRun}
		if o.Short {
			b.how = shortRun
		}
		page := ""
		if o.Update {
			page = docs
		}
		_, err := harness.Run(ctx, out, b, o.parts, harness.Choice{Short: o.Short}, page)
		return err
	})
}

// A manner says how much to measure.
type manner struct {
	rounds   int           // rounds of off, agent, off, perf
	segment  time.Duration // length of each of a round's four segments
	paired   pairedManner
	busy     time.Duration // length of the recording of two busy CPUs
	idle     idleManner
	starts   int  // starts of the agent, with a guest of many methods
	cold     bool // do not wait until the guests are warm
	depth    depthManner
	events   eventManner
	history  historyManner
	clock    clockManner
	growth   growthManner
	switches switchManner
	slowdown slowdownManner
	latency  latencyManner
}

var (
	longRun = manner{
		rounds: 8, segment: 4 * time.Second, busy: 30 * time.Second, idle: longIdle, paired: longPaired, starts: 5,
		depth: longDepth, events: longEvents,
		history: longHistory, clock: longClocks, growth: longGrowth, switches: longSwitches,
		slowdown: longSlowdown, latency: longLatency,
	}
	shortRun = manner{
		rounds: 1, segment: 500 * time.Millisecond, busy: 2 * time.Second, idle: shortIdle, paired: shortPaired, starts: 1,
		cold: true, depth: shortDepth,
		events: shortEvents, history: shortHistory, clock: shortClocks, growth: shortGrowth, switches: shortSwitches,
		slowdown: shortSlowdown, latency: shortLatency,
	}
)

// A bench measures the agent.
type bench struct {
	options
	agent profiler.Agent
	jdk   jvm.JDK
	out   io.Writer
	how   manner
}
