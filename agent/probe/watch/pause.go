package watch

import (
	"errors"
	"math/rand/v2"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/breakpoint"
)

// Pause ends after a random time, until the next of so many watches a second. Watches at fixed
// intervals would meet a process that has the same rhythm always in the same phase. With a rate of
// 0 it lasts for ever.
func Pause(hz int) <-chan time.Time {
	if hz <= 0 {
		return nil
	}
	const longest = 8 // times the mean
	return time.After(time.Duration(min(rand.ExpFloat64(), longest) / float64(hz) * float64(time.Second)))
}

// Refused reports whether an error says that no thread could be watched at that moment: another
// watch may succeed.
func Refused(err error) bool {
	return errors.Is(err, breakpoint.ErrBusy) || errors.Is(err, breakpoint.ErrThreadsGone) ||
		errors.Is(err, proc.ErrGone) ||
		errors.Is(err, unix.ESRCH)
}
