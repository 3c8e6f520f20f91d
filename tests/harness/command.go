// Package harness has what the commands that measure the agent share: their command line, sections
// that are measured one after the other and written into the documentation, guests that are
// compared with themselves, and confidence intervals.
//
//	func main() { harness.Main("bench", run) }
//
//	sections := []harness.Section[bench]{{Name: "busy", Markers: []string{"busy"}, Aim: "1 % of a core", Plan: harness.Always(busy)}}
//	failed, err := harness.Run(ctx, os.Stdout, b, sections, harness.Choice{}, "")
package harness

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
)

// Main runs a command until it ends or is interrupted, and exits.
func Main(name string, run func(ctx context.Context, args []string, out io.Writer) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// Options are the flags that all commands have.
type Options struct {
	Agent  string // the built agent; empty: it is built
	Short  bool   // what CI runs
	Update bool   // rewrite tables of the documentation
}

// Flags returns the flags of a command, for the command to add its own. short says what the short
// form leaves out, page is where the tables are.
func (o *Options) Flags(command, short, page string) *flag.FlagSet {
	flags := flag.NewFlagSet(command, flag.ContinueOnError)
	flags.StringVar(&o.Agent, "agent", "", "the built agent (default: build it)")
	flags.BoolVar(&o.Short, "short", false, short)
	flags.BoolVar(&o.Update, "update", false, "rewrite the tables in "+page)
	return flags
}

// WithAgent calls do with the agent, which is built unless it was, and a directory that is removed
// afterwards.
func (o *Options) WithAgent(ctx context.Context, do func(agent profiler.Agent, dir string) error) error {
	dir, err := os.MkdirTemp("", "vmprof-harness-")
	if err != nil {
		return fmt.Errorf("create a directory for the agent: %w", err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	agent := profiler.Agent{Path: o.Agent}
	if o.Agent == "" {
		if agent, err = profiler.Build(ctx, dir); err != nil {
			return err
		}
	}
	return do(agent, dir)
}

// RunTests is a TestMain of tests that need the built agent. It is in a directory that every user
// may enter.
func RunTests(m *testing.M, agent *profiler.Agent) {
	code := 1
	if err := new(Options).WithAgent(context.Background(), func(built profiler.Agent, _ string) error {
		*agent = built
		code = m.Run()
		return nil
	}); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}
