package targets

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/timing/hotspot"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/cli"
)

// JVMs are those of the processes that run a JVM.
func JVMs(ctx context.Context, pids []int) []int {
	return slices.DeleteFunc(slices.Clone(pids), func(pid int) bool {
		return !hotspot.Serves(ctx, proc.DefaultRoot, pid)
	})
}

// CheckMethod fails if JVMs will not run a method because its class is loaded and does not have it:
// with every, if that is so in one of them, otherwise if it is so in all. A class that is not
// loaded may still be, which is logged.
func CheckMethod(ctx context.Context, pids []int, method hotspot.Method, every bool, log *slog.Logger) error {
	return checkKnown(pids, method, every, log, func(pid int) (hotspot.Known, error) {
		return hotspot.Find(ctx, proc.DefaultRoot, pid, method)
	})
}

func checkKnown(
	pids []int, method hotspot.Method, every bool, log *slog.Logger, find func(pid int) (hotspot.Known, error),
) error {
	var missing []error
	for _, pid := range pids {
		known, err := find(pid)
		var ambiguous *hotspot.AmbiguousError
		switch {
		case errors.As(err, &ambiguous):
			return err
		case err != nil: // then what comes next says what is wrong, or finds the method
			log.Debug("cannot look for the method", "pid", pid, "method", method.String(), "err", err)
		case known.Class && !known.Method:
			missing = append(missing, fmt.Errorf("process %d has no method %s, though its class is loaded%s", pid,
				method, cli.DidYouMean(known.Near)))
		case !known.Class:
			log.Warn("the method's class is not loaded (yet): waiting for it"+cli.DidYouMean(known.Near), "pid", pid,
				"method", method.String())
		}
	}
	if len(missing) > 0 && (every || len(missing) == len(pids)) {
		return missing[0]
	}
	return nil
}
