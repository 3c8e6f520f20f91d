package profiler

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// A PerfRun is a perf that records with frame-pointer call chains, as the agent's cheapest rival.
type PerfRun struct {
	*Run
	dir string
}

// StartPerf starts perf record -g on the software clock, which is what the agent uses on a machine
// without a PMU.
func StartPerf(ctx context.Context, o Options) (*PerfRun, error) {
	dir, err := os.MkdirTemp("", "vmprof-perf-")
	if err != nil {
		return nil, fmt.Errorf("create a directory for perf: %w", err)
	}
	args := []string{"record", "-g", "-e", "cpu-clock", "-F", strconv.Itoa(o.Frequency), "-o",
		filepath.Join(dir, "perf.data")}
	if o.PID != 0 {
		args = append(args, "-p", strconv.Itoa(o.PID))
	} else {
		args = append(args, "-a")
	}
	run, err := start(ctx, "perf", args...)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("install linux-perf: %w", err), os.RemoveAll(dir))
	}
	return &PerfRun{Run: run, dir: dir}, nil
}

// Stop ends perf, and forgets what it recorded.
func (r *PerfRun) Stop() error {
	defer os.RemoveAll(r.dir)
	// perf ends itself by the signal that it was interrupted with, after it has written everything.
	output, err := r.Interrupt()
	if _, written := os.Stat(filepath.Join(r.dir, "perf.data")); written != nil {
		return fmt.Errorf("perf record: %w\n%s", errors.Join(err, written), output)
	}
	return nil
}
