// Command accuracy profiles programs whose profile is known, and fails if the agent's is another.
//
// Two things are measured. Shares: guests that measure themselves (package guests) say what share of the samples each
// of their methods and threads must have. Completeness: the share of the samples of real programs (package suite)
// whose stack goes down to the thread's entry frame.
//
//	go run ./tests/accuracy                 # everything; some 20 minutes
//	go run ./tests/accuracy -short          # what CI runs; a minute
//	go run ./tests/accuracy -run 'Churn, C1, JDK 25'
//	go run ./tests/accuracy -update         # also rewrites the tables in docs/accuracy.md
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
)

// docs is the page whose tables -update rewrites, from the root of the repository.
const docs = "docs/accuracy.md"

// An options is what the command line says.
type options struct {
	agent  string
	run    *regexp.Regexp
	short  bool
	update bool
}

// errInaccurate says that a profile was not what it must be. The tables say which.
var errInaccurate = errors.New("a profile is further from the truth than its tolerance")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "accuracy:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("accuracy", flag.ContinueOnError)
	flags.StringVar(&o.agent, "agent", "", "the built agent (default: build it)")
	flags.BoolVar(&o.short, "short", false, "fewer flavours, shorter recordings")
	flags.BoolVar(&o.update, "update", false, "rewrite the tables in "+docs)
	pattern := flags.String("run", "", "only what matches, by guest, flavour and JDK as they are printed")
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	var err error
	if o.run, err = regexp.Compile(*pattern); err != nil {
		return options{}, fmt.Errorf("-run: %w", err)
	}
	if o.update && (o.short || *pattern != "") {
		return options{}, errors.New("-update needs a whole run: leave out -short and -run")
	}
	return o, nil
}

func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "vmprof-accuracy-")
	if err != nil {
		return fmt.Errorf("create a directory for the agent: %w", err)
	}
	defer os.RemoveAll(dir)
	m := meter{agent: profiler.Agent{Path: o.agent}, out: out, how: longRun}
	if o.short {
		m.how = shortRun
	}
	if o.agent == "" {
		if m.agent, err = profiler.Build(ctx, dir); err != nil {
			return err
		}
	}
	jdks, err := jvm.Find(jvm.Root)
	if err != nil {
		return err
	}
	if len(jdks) == 0 {
		return jvm.ErrNoJDK
	}

	results, err := m.shares(ctx, plan(jdks, o))
	if err != nil {
		return err
	}
	completes, err := m.completeness(ctx, jdks, o)
	if err != nil {
		return err
	}
	if o.update {
		if err := update(results, completes); err != nil {
			return err
		}
	}
	if !allOK(results, completes) {
		return errInaccurate
	}
	return nil
}

// A manner says how long to look.
type manner struct {
	warmup    time.Duration // until most methods are compiled
	recording time.Duration
	frequency int
}

var (
	longRun  = manner{warmup: time.Second, recording: 5 * time.Second, frequency: 1999}
	shortRun = manner{warmup: 300 * time.Millisecond, recording: time.Second, frequency: 3999}
)

// A meter measures the agent.
type meter struct {
	agent profiler.Agent
	out   io.Writer
	how   manner
}
