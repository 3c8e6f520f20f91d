package profiler

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// An Async is an installed async-profiler.
type Async struct {
	Command string // asprof
	Library string // for -agentpath
}

// AsyncHome is the environment variable with the directory where async-profiler is installed.
const AsyncHome = "ASYNC_PROFILER"

// ErrNoAsync says that async-profiler is not installed.
var ErrNoAsync = errors.New("no async-profiler: name its directory in " + AsyncHome + ", or have asprof in PATH")

// FindAsync looks for async-profiler.
func FindAsync() (Async, error) {
	command := filepath.Join(os.Getenv(AsyncHome), "bin", "asprof")
	if os.Getenv(AsyncHome) == "" {
		path, err := exec.LookPath("asprof")
		if err != nil {
			return Async{}, ErrNoAsync
		}
		if command, err = filepath.EvalSymlinks(path); err != nil {
			return Async{}, fmt.Errorf("find async-profiler: %w", err)
		}
	}
	a := Async{Command: command, Library: filepath.Join(filepath.Dir(command), "..", "lib", "libasyncProfiler.so")}
	for _, file := range []string{a.Command, a.Library} {
		if _, err := os.Stat(file); err != nil {
			return Async{}, fmt.Errorf("%w: %w", ErrNoAsync, err)
		}
	}
	return a, nil
}

// Start starts to sample a JVM in its CPU time. Stop writes the samples to the file at path, in the
// format of JFR.
func (a Async) Start(ctx context.Context, pid int, period time.Duration, path string) error {
	return a.order(ctx, "start", "-e", "cpu", "-i", strconv.FormatInt(period.Nanoseconds(), 10), "-o", "jfr", "-f",
		path, strconv.Itoa(pid))
}

// StartWall starts to sample all threads of a JVM, whether they run or not, each once in a period.
func (a Async) StartWall(ctx context.Context, pid int, period time.Duration) error {
	return a.order(ctx, "start", "-e", "wall", "-i", strconv.FormatInt(period.Nanoseconds(), 10), strconv.Itoa(pid))
}

// StopCollapsed ends what StartWall began, and writes the samples to the file at path: on each line
// a stack and how many.
func (a Async) StopCollapsed(ctx context.Context, pid int, path string) error {
	return a.order(ctx, "stop", "-o", "collapsed", "-f", path, strconv.Itoa(pid))
}

// Stop ends what Start began.
func (a Async) Stop(ctx context.Context, pid int) error {
	return a.order(ctx, "stop", strconv.Itoa(pid))
}

func (a Async) order(ctx context.Context, order ...string) error {
	if output, err := exec.CommandContext(ctx, a.Command, order...).CombinedOutput(); err != nil {
		return fmt.Errorf("asprof %s: %w\n%s", order[0], err, output)
	}
	return nil
}
