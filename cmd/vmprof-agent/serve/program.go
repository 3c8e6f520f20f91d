package serve

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/pflag"

	"github.com/vmprof-agent/vmprof-agent/agent/view/program"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/cli"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/sampling"
)

// execFlags are the flags of serve for a program that gets each window.
type execFlags struct {
	path, user string
	timeout    time.Duration
	memory     cli.Size
}

func (e *execFlags) add(fs *pflag.FlagSet) {
	e.timeout, e.memory = program.DefaultTimeout, program.DefaultMemory
	fs.StringVar(&e.path, "window-exec", "", "run `PROGRAM` on each window: docs/costs.md")
	fs.StringVar(&e.user, "window-exec-user", "", "run it as `USER` (default: an unused one)")
	fs.Var(cli.Seconds(&e.timeout), "window-exec-timeout", "kill it after `T`")
	fs.Var(&e.memory, "window-exec-memory", "limit each process to `SIZE`")
}

// leastMemory is what the runner needs itself.
const leastMemory = 64_000_000

func (e *execFlags) check(fs *pflag.FlagSet) error {
	switch {
	case e.path == "" && (fs.Changed("window-exec-user") || fs.Changed("window-exec-timeout") ||
		fs.Changed("window-exec-memory")):
		return cli.Misuse("--window-exec-user, -timeout and -memory need --window-exec=PROGRAM")
	case e.timeout <= 0 || e.timeout > windowLength:
		return cli.Misuse("--window-exec-timeout needs a time of up to 10s, which is the length of a window")
	case e.memory < leastMemory:
		return cli.Misuse("--window-exec-memory needs at least 64MB")
	}
	return nil
}

// start starts the runner; nil without a program.
func (e *execFlags) start(parts []sampling.Part, log *slog.Logger) (*program.Program, error) {
	if e.path == "" {
		return nil, nil
	}
	o := program.Options{Path: e.path, User: e.user, Timeout: e.timeout, Memory: int64(e.memory), Log: log}
	for _, p := range parts {
		o.Parts = append(o.Parts, program.Part(p))
	}
	return program.Start(o)
}

// RunProgram is the hidden verb of the runner.
func RunProgram(_ context.Context, args []string, _, _ io.Writer) error { return program.Main(args) }
