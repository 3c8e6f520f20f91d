package tests

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/tests/breakpoints"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
)

// TestCallsKilledListener: an agent that is killed while it listens leaves no breakpoint: all of
// the thread's debug registers can be had again, and the JVM is unhurt.
func TestCallsKilledListener(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("how many debug registers there are is known of amd64 only")
	}
	breakpoints.Need(t)
	guest := start(t, "Recursive")
	worker := threadOf(t, guest.PID(), "worker")
	if err := takeBreakpoints(worker); err != nil {
		t.Skipf("no debug registers: %v", err)
	}
	for range 3 {
		run, err := built.Start(t.Context(), profiler.Options{PID: guest.PID(), Extra: []string{
			"-e", "calls", "--engine=listener", "--budget=20%", breakpoints.Flag,
		}})
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the agent has debug registers of the thread", func() bool {
			return errors.Is(takeBreakpoints(worker), unix.ENOSPC)
		})
		run.Signal(syscall.SIGKILL)
		run.Wait() // it was killed
		eventually(t, "all debug registers are free", func() bool { return takeBreakpoints(worker) == nil })
	}
	if _, err := guest.Await(t.Context(), time.Now()); err != nil {
		t.Errorf("the guest is hurt: %v", err)
	}
}

// threadOf returns a thread whose name begins so.
func threadOf(t *testing.T, pid int, name string) int {
	t.Helper()
	names, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/comm", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, comm := range names {
		if text, err := os.ReadFile(comm); err == nil && strings.HasPrefix(string(text), name) {
			tid, err := strconv.Atoi(filepath.Base(filepath.Dir(comm)))
			if err != nil {
				t.Fatal(err)
			}
			return tid
		}
	}
	t.Fatalf("process %d has no thread %s", pid, name)
	return 0
}

// takeBreakpoints takes all four debug registers of a thread for a moment. The error is ENOSPC if
// somebody has one.
func takeBreakpoints(tid int) error {
	const executed = 4 // HW_BREAKPOINT_X of linux/hw_breakpoint.h
	for range 4 {
		attr := unix.PerfEventAttr{
			Type: unix.PERF_TYPE_BREAKPOINT, Size: unix.PERF_ATTR_SIZE_VER5, Sample: 1,
			Bits: unix.PerfBitDisabled | unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv,
			// An address that is executed never, of the length that x86 wants.
			Bp_type: executed, Ext1: 4096, Ext2: 8,
		}
		fd, err := unix.PerfEventOpen(&attr, tid, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
	}
	return nil
}
