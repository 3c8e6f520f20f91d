// Package breakpoints says whether a test may set hardware breakpoints in the programs that it
// starts.
package breakpoints

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/probe/breakpoint"
)

// Flag has the agent set hardware breakpoints in virtual machines as well.
const Flag = "--breakpoints=always"

// trialTime is long enough to find a machine that loses one exception in 100,000 99 times in 100.
const trialTime = 10 * time.Second

// Check returns breakpoint.ErrLost on a machine that loses debug exceptions, where a program
// with breakpoints may die. The trial is made once for each start of the machine: its result stands
// in a file.
func Check() error {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return fmt.Errorf("identify this start of the machine: %w", err)
	}
	path := filepath.Join(os.TempDir(), "vmprof-breakpoints-"+strings.TrimSpace(string(boot)))
	const kept, lost = "kept", "lost"
	if result, err := os.ReadFile(path); err == nil {
		if string(result) == lost {
			return breakpoint.ErrLost
		}
		return nil
	}
	err = breakpoint.Always.Check() // nil at once where there is nothing to lose
	if err == nil && breakpoint.Auto.Check() != nil {
		err = breakpoint.Try(trialTime)
	}
	switch {
	case errors.Is(err, breakpoint.ErrLost):
		return errors.Join(err, os.WriteFile(path, []byte(lost), 0o600))
	case err != nil:
		return err
	}
	return os.WriteFile(path, []byte(kept), 0o600)
}

// Need skips a test on a machine that loses debug exceptions, in CI as well: no program there
// survives breakpoints for long.
func Need(t testing.TB) {
	t.Helper()
	err := Check()
	if errors.Is(err, breakpoint.ErrLost) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}
