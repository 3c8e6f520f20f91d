// Command bench measures what profiling costs: the guest, in CPU time beside perf record -g at the same rate, or while
// events are recorded, and the agent, in CPU time, memory, time in BPF and bytes.
//
//	go run ./tests/bench                    # everything; some two and a half hours
//	go run ./tests/bench -short             # one guest, one rate, one kind; two minutes, and far too little to conclude from
//	go run ./tests/bench -guests Javac -rates 999
//	go run ./tests/bench -parts depth       # only what samples cost against the depth of the stack
//	go run ./tests/bench -parts events -guests H2 -kinds alloc,lock
//	go run ./tests/bench -update            # also rewrites the tables in docs/performance.md that it measures
//
// It prints aims and whether they were reached, and fails only if something could not be measured: on another machine
// the figures are others.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
)

// docs is the page whose tables -update rewrites, from the root of the repository.
const docs = "docs/performance.md"

// An options is what the command line says.
type options struct {
	agent  string
	guests []string
	rates  []int
	parts  []part

	eventGuests []string
	kinds       []eventKind

	short  bool
	update bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.StringVar(&o.agent, "agent", "", "the built agent (default: build it)")
	flags.BoolVar(&o.short, "short", false, "one cold guest, one rate, one kind of events, one round or two")
	flags.BoolVar(&o.update, "update", false, "rewrite the tables in "+docs)
	guests := flags.String("guests", "Xalan,Jython,Javac", "programs of the suite; the part events has its own unless this is set")
	rates := flags.String("rates", "99,999,4000", "samples a second, of the part costs")
	parts := flags.String("parts", partNames(), "what to measure")
	kinds := flags.String("kinds", eventKindNames(), "what is recorded, of the part events")
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	if o.short {
		if o.update {
			return options{}, errors.New("-update needs a whole run: leave out -short")
		}
		*guests, *rates, *kinds = "Jython", "999", "alloc"
	}
	o.guests, o.eventGuests = strings.Split(*guests, ","), defaultEventGuests
	flags.Visit(func(f *flag.Flag) {
		if f.Name == "guests" {
			o.eventGuests = o.guests
		}
	})
	if o.short {
		o.eventGuests = o.guests
	}
	for _, word := range strings.Split(*rates, ",") {
		rate, err := strconv.Atoi(word)
		if err != nil || rate < 1 {
			return options{}, fmt.Errorf("-rates: %q is no rate", word)
		}
		o.rates = append(o.rates, rate)
	}
	var err error
	if o.kinds, err = chooseKinds(*kinds); err != nil {
		return options{}, err
	}
	o.parts, err = choose(*parts)
	return o, err
}

func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "vmprof-bench-")
	if err != nil {
		return fmt.Errorf("create a directory for the agent: %w", err)
	}
	defer os.RemoveAll(dir)
	b := bench{agent: profiler.Agent{Path: o.agent}, out: out, how: longRun}
	if o.short {
		b.how = shortRun
	}
	if o.agent == "" {
		if b.agent, err = profiler.Build(ctx, dir); err != nil {
			return err
		}
	}
	if b.jdk, err = jvm.Oldest(); err != nil {
		return err
	}

	var sections []section
	for _, p := range o.parts {
		measured, err := p.measure(ctx, b, o)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		sections = append(sections, measured...)
	}
	if o.update {
		return update(sections)
	}
	return nil
}

// A manner says how much to measure.
type manner struct {
	rounds  int           // of off, agent, off, perf
	segment time.Duration // of a round's four
	busy    time.Duration // of the recording of two busy CPUs
	starts  int           // of the agent, beside a guest of many methods
	cold    bool          // do not wait until the guests are warm
	depth   depthManner
	events  eventManner
}

var (
	longRun = manner{
		rounds: 8, segment: 4 * time.Second, busy: 30 * time.Second, starts: 5, depth: longDepth, events: longEvents,
	}
	shortRun = manner{
		rounds: 1, segment: 500 * time.Millisecond, busy: 2 * time.Second, starts: 1, cold: true, depth: shortDepth,
		events: shortEvents,
	}
)

// A bench measures the agent.
type bench struct {
	agent profiler.Agent
	jdk   jvm.JDK
	out   io.Writer
	how   manner
}
