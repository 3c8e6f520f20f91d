// Command vmprof-agent profiles managed runtimes on a Linux host from outside: see README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"
)

// A verb is one thing that the program does. It writes results to stdout and everything else to stderr.
type verb struct {
	name    string
	summary string // one line of help; empty hides the verb
	run     func(ctx context.Context, args []string, stdout, stderr io.Writer) error
}

func main() {
	// The first signal ends a verb in order, so that it still writes what it has; the second one ends the program.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run does what the arguments say and returns the exit code: 0, 1 if it failed, 2 if it was not understood.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	v, args, err := choose(args)
	if err == nil {
		err = v.run(ctx, args, stdout, stderr)
	}
	switch {
	case err == nil, errors.Is(err, pflag.ErrHelp): // whose text is out already
		return 0
	case errors.Is(err, errReported):
		return 1
	}
	fmt.Fprintln(stderr, complaint(v.name)+":", err)
	if !isUsage(err) {
		return 1
	}
	fmt.Fprintf(stderr, "Run '%s -h' for help.\n", complaint(v.name))
	return 2
}
