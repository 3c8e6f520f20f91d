// Package tests runs the built agent end to end: beside guests whose profile is known, with every
// way to start and to end it, and with what goes wrong.
//
// The tests need root, BPF and a JDK. Where one is missing they are skipped with that reason; in
// CI, where the environment has CI=true, they fail.
package tests

import (
	"bytes"
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/stacks"
	"github.com/vmprof-agent/vmprof-agent/tests/wait"
)

// built is the agent under test. It stands in a directory that every user may enter.
var built profiler.Agent

func TestMain(m *testing.M) { harness.RunTests(m, &built) }

// frequency of the tests' recordings: enough for shares of a second's recording, little enough for
// two CPUs.
const frequency = 999

// start starts a guest in its default flavour, and ends it with the test.
func start(t *testing.T, class string) *guests.Guest {
	t.Helper()
	needs.Root(t, "sampling")
	// The hot method is looked for by its name: that is only known for sure where it is not
	// inlined.
	flags := []string{"-XX:CompileCommand=quiet", "-XX:CompileCommand=dontinline,guest.Plain::heavy"}
	guest, err := guests.Start(t.Context(), needs.JDK(t), guests.Program{Name: class, Class: class},
		guests.Flavour{Flags: flags})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { guest.Close() }) // an error if the test killed it
	return guest
}

// An outcome is how a run of the agent ended.
type outcome struct {
	stdout, stderr string
	code           int
}

// agent runs the agent to its end.
func agent(t *testing.T, args ...string) outcome {
	t.Helper()
	return finish(t, exec.CommandContext(t.Context(), built.Path, args...))
}

func finish(t *testing.T, command *exec.Cmd) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	err := command.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return outcome{stdout.String(), stderr.String(), command.ProcessState.ExitCode()}
}

// mustSucceed runs the agent to an end that is meant to be good.
func mustSucceed(t *testing.T, args ...string) outcome {
	t.Helper()
	got := agent(t, args...)
	if got.code != 0 {
		t.Fatalf("%q ended with %d:\n%s", args, got.code, got.stderr)
	}
	return got
}

// output returns a path for a recording in a directory of its own.
func output(t *testing.T, name string) string { return filepath.Join(t.TempDir(), name) }

// patience is how long tests wait for something to happen: on a busy machine what takes a second
// may take a minute.
const patience = wait.Long

// eventually waits until something is true, and fails the test when that does not happen.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	wait.For(t, patience, what, is)
}

// optimized waits until C2 has compiled methods of a JVM.
func optimized(t *testing.T, jdk jvm.JDK, pid int, methods ...string) {
	t.Helper()
	for _, method := range methods {
		eventually(t, "C2 has compiled "+method, func() bool {
			is, err := jdk.Optimized(t.Context(), pid, method)
			if err != nil {
				t.Fatal(err)
			}
			return is
		})
	}
}

// recordWork samples a process until it has used so much CPU time, and its own start and
// compilation before that: on a busy machine a length of time says nothing of how many samples
// there are.
func recordWork(t *testing.T, pid int, work time.Duration) *profile.Profile {
	t.Helper()
	used := func(after time.Duration) func() bool {
		before := cpuTime(t, pid)
		return func() bool { return cpuTime(t, pid)-before >= after }
	}
	eventually(t, "the process has begun", used(work/2))
	recording, err := built.While(t.Context(), profiler.Options{PID: pid, Frequency: frequency},
		(*profiler.AgentRun).WaitSampling,
		func(*profiler.AgentRun) error {
			eventually(t, "the process works", used(work))
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
	return recording.Profile
}

// notCutByTime are those that were not cut for the time that their walk took: where others interrupt
// it, as on a busy machine, a few are. They say so. Most are not cut.
func notCutByTime(t *testing.T, all []stacks.Stack) []stacks.Stack {
	t.Helper()
	const most = 0.1
	cutByTime := func(s stacks.Stack) bool { return s.Truncated() == "time" }
	if n, of := stacks.Count(all, cutByTime), stacks.Count(all,
		func(stacks.Stack) bool { return true }); float64(n) > most*float64(of) {
		t.Errorf("%d of %d stacks are cut for their time", n, of)
	}
	return slices.DeleteFunc(all, cutByTime)
}

// cpuTime is the CPU time that a process has used.
func cpuTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	used, ok := proc.CPUTime(pid)
	if !ok {
		t.Fatalf("process %d has ended", pid)
	}
	return used
}
