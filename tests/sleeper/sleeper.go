// Package sleeper starts a process that does nothing, for tests of what looks at processes.
package sleeper

import (
	"os/exec"
	"testing"
)

// Start starts a process that waits. It is reaped as soon as it has ended.
func Start(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { cmd.Wait(); close(done) }()
	t.Cleanup(func() { cmd.Process.Kill(); <-done })
	return cmd
}
