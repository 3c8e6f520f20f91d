package profiler

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/tests/wait"
)

func TestRun(t *testing.T) {
	run, err := start(t.Context(), "sh", "-c", "echo started; while :; do :; done")
	if err != nil {
		t.Fatal(err)
	}
	var usage Usage
	wait.For(t, wait.Long, "a tick of CPU time", func() bool {
		if usage, err = run.Usage(); err != nil {
			t.Fatal(err)
		}
		return usage.CPU > 0
	})
	if usage.RSS == 0 {
		t.Error("a process without memory")
	}
	output, err := run.Interrupt()
	if err == nil || output != "started\n" {
		t.Errorf("an interrupted shell gave %q, %v", output, err)
	}
	if run.TotalCPU() == 0 {
		t.Error("a process that took no time")
	}
	if again, _ := run.Wait(); again != output {
		t.Errorf("waiting again gave %q", again)
	}
	if err := run.Signal(syscall.SIGINT); err == nil {
		t.Error("a process that is gone took a signal")
	}
}

func TestRunCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	run, err := start(ctx, "sh", "-c", "trap 'echo interrupted; exit 3' INT; echo ready; while :; do sleep 0.01; done")
	if err != nil {
		t.Fatal(err)
	}
	if err := run.waitFor(map[string]int{"ready": 1}); err != nil {
		t.Fatal(err)
	}
	cancel()
	if output, _ := run.Wait(); !strings.Contains(output, "interrupted") {
		t.Errorf("got %q, want a process that was asked to end", output)
	}
}

func TestWaitSamplingOfTheDead(t *testing.T) {
	run, err := start(t.Context(), "sh", "-c", "echo no privilege; exit 1")
	if err != nil {
		t.Fatal(err)
	}
	for _, ready := range []func() error{run.WaitSampling, run.WaitAttached} {
		if err := ready(); err == nil || !strings.Contains(err.Error(), "no privilege") {
			t.Errorf("got %v, want what the process said", err)
		}
	}
	if _, err := run.Wait(); err == nil {
		t.Error("the exit code got lost")
	}
}

func TestPerf(t *testing.T) {
	if _, err := exec.LookPath("perf"); err != nil && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	if os.Geteuid() != 0 && os.Getenv("CI") != "true" {
		t.Skip("sampling the machine needs root")
	}
	run, err := StartPerf(t.Context(), Options{Frequency: 99})
	if err != nil {
		t.Fatal(err)
	}
	if err := run.WaitSampling(); err != nil {
		t.Fatal(err)
	}
	if err := run.WaitAttached(); err != nil {
		t.Error(err)
	}
	if err := run.Stop(); err != nil {
		t.Error(err)
	}
}
