package proc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// What callers branch on. Errors of this package wrap one of these, or an error of the system call
// that failed.
var (
	// ErrGone: the process ended, or is another one than it was.
	ErrGone = errors.New("process is gone")
	// ErrDenied: the kernel refuses. The error's text names the remedy.
	ErrDenied = errors.New("permission denied")
	// ErrNotOfUser: the agent could open the file, but the user of the process for which it is
	// opened could not. It is an ErrDenied.
	ErrNotOfUser = fmt.Errorf("%w: the user of the process may not read it", ErrDenied)
	// ErrTooLarge: a bound of this package was passed.
	ErrTooLarge = errors.New("larger than the bound")
	// ErrMalformed: text that is not as the kernel writes it.
	ErrMalformed = errors.New("malformed")
	// ErrUnmapped: nothing readable at that address.
	ErrUnmapped = errors.New("address is not readable")
	// ErrNotRegular: not a regular file, so reading it might block or have effects.
	ErrNotRegular = errors.New("not a regular file")
	// ErrReplaced: the file at that path is another one than the process has mapped.
	ErrReplaced = errors.New("file was replaced since it was mapped")
	// ErrTimeout: the call did not end within its deadline and was abandoned.
	ErrTimeout = errors.New("target did not answer in time")
	// ErrQuarantined: the target hung recently and is left alone for a while.
	ErrQuarantined = errors.New("process is quarantined: reading it hung or failed, and the agent retries later")
	// ErrCrowded: too many processes of the same user and cgroup hang.
	ErrCrowded = errors.New("too many reads hang for its user and cgroup")
	// ErrExhausted: too many abandoned calls are still outstanding.
	ErrExhausted = errors.New("too many reads hang")
)

// HeldUp reports whether err says that a target did not answer, or was not asked as it or others
// did not: another time it may.
func HeldUp(err error) bool {
	return errors.Is(err, ErrTimeout) || errors.Is(err, ErrQuarantined) || errors.Is(err, ErrCrowded) ||
		errors.Is(err, ErrExhausted)
}

// Refused reports whether err says that there is a file and that it is not opened for the process:
// it is not one that the process's user may read, or not one that the agent reads.
func Refused(err error) bool {
	for _, why := range []error{ErrDenied, ErrTooLarge, ErrNotRegular, ErrReplaced, unix.ELOOP, unix.ENAMETOOLONG} {
		if errors.Is(err, why) {
			return true
		}
	}
	return false
}

// Cause returns one word for err, out of a small fixed set, for use as a metric label. Nil has no
// cause: "".
func Cause(err error) string {
	if err == nil {
		return ""
	}
	for _, c := range []struct {
		err  error
		word string
	}{
		{ErrGone, "gone"},
		{ErrDenied, "denied"},
		{ErrTooLarge, "too_large"},
		{ErrMalformed, "malformed"},
		{ErrUnmapped, "unmapped"},
		{ErrNotRegular, "not_regular"},
		{ErrReplaced, "replaced"},
		{ErrTimeout, "timeout"},
		{ErrQuarantined, "quarantined"},
		{ErrCrowded, "crowded"},
		{ErrExhausted, "exhausted"},
		{context.Canceled, "canceled"},
		{fs.ErrNotExist, "not_found"},
	} {
		if errors.Is(err, c.err) {
			return c.word
		}
	}
	return "other"
}

// Causes lists every word that Cause returns for an error, so that counters can exist before the
// first failure.
func Causes() []string {
	return []string{"gone", "denied", "too_large", "malformed", "unmapped", "not_regular", "replaced", "timeout",
		"quarantined", "crowded", "exhausted", "canceled", "not_found", "other"}
}

// explain gives the error of a system call on /proc/PID its meaning here. Files below /proc/PID
// vanish with the process, hence a missing one means that the process is gone.
func explain(pid int, doing string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ESRCH), errors.Is(err, fs.ErrNotExist), errors.Is(err, os.ErrClosed):
		return fmt.Errorf("%s of process %d: %w", doing, pid, ErrGone)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s of process %d: %w: grant CAP_SYS_PTRACE, or run as the user of that process",
			doing, pid, ErrDenied)
	}
	return fmt.Errorf("%s of process %d: %w", doing, pid, err)
}

// A PanicError is a panic that Catch has recovered. It is a fault of the agent's, which something
// in a target has brought out.
type PanicError struct {
	Value any
	Stack []byte // stack of the goroutine, from where it was recovered
}

func (e *PanicError) Error() string { return fmt.Sprintf("the agent panicked: %v", e.Value) }

// Catch calls fn and returns its error. A panic in fn becomes a *PanicError, or the one that fn
// panicked with. Locks that fn took and does not release with defer stay locked.
func Catch(fn func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = panicError(v)
		}
	}()
	return fn()
}

func panicError(v any) *PanicError {
	if e, ok := v.(*PanicError); ok {
		return e
	}
	return &PanicError{v, debug.Stack()}
}

// Repanic panics with the *PanicError in err, if there is one: for a caller that has a Catch of its
// own around it.
func Repanic(err error) {
	var e *PanicError
	if errors.As(err, &e) {
		panic(e)
	}
}
