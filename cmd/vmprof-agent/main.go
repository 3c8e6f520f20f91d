// Command vmprof-agent profiles managed runtimes on a Linux host from outside: see README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/pflag"
)

// gcPercent trades a little CPU time for memory: the heap is small, as that of an agent that is always on should be.
const gcPercent = 50

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
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
	fmt.Fprintf(stderr, "%v: %v\n", v, err)
	if !isUsage(err) {
		return 1
	}
	fmt.Fprintf(stderr, "Run '%v -h' for help.\n", v)
	return 2
}
