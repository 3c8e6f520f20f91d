package tests

import (
	"os"
	"os/exec"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/tests/needs"
)

// The accuracy of the agent, on fewer programs than make accuracy has.
func TestAccuracy(t *testing.T) {
	for _, tool := range []string{"gcc", "php"} {
		if _, err := exec.LookPath(tool); err != nil {
			needs.Missing(t, err)
		}
	}
	command(t, "accuracy")
}

// A real program beside what the kernel and the JVM say of it.
func TestCrosscheck(t *testing.T) {
	if _, err := os.Stat("/usr/share/java/rhino.jar"); err != nil {
		needs.Missing(t, err)
	}
	command(t, "crosscheck")
}

// That make bench works. What it measures is no matter of pass or fail.
func TestBench(t *testing.T) {
	if _, err := exec.LookPath("perf"); err != nil {
		needs.Missing(t, err)
	}
	command(t, "bench")
}

// command runs the short form of a command of this directory.
func command(t *testing.T, name string) {
	needs.Root(t, "sampling")
	needs.JDK(t)
	run := exec.CommandContext(t.Context(), "go", "run", "./"+name, "-short", "-agent", built.Path)
	run.Cancel = func() error { return run.Process.Signal(os.Interrupt) }
	output, err := run.CombinedOutput()
	t.Logf("%s", output)
	if err != nil {
		t.Error(err)
	}
}
