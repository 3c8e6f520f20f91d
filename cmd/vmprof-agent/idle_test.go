package main

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/proc"
)

func TestIdleNotes(t *testing.T) {
	guest := startSleeper(t)
	pid := guest.Process.Pid
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) { // until it sleeps
		if comm, _ := proc.DefaultRoot.Comm(pid); comm == "sleep" {
			if stat, err := proc.DefaultRoot.Stat(pid); err == nil && stat.State == 'S' {
				break
			}
		}
	}
	used := usedBy([]int{pid, os.Getpid(), 1<<22 - 1})
	if len(used) != 2 {
		t.Fatalf("%v", used)
	}
	began, _ := proc.CPUTime(os.Getpid())
	for now := began; now-began < 50*time.Millisecond; {
		now, _ = proc.CPUTime(os.Getpid())
	}
	if got, want := strings.Join(idleNotes(used, 10*time.Millisecond), "\n"), "process "+strconv.Itoa(pid)+" used no CPU time"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := strings.Join(idleNotes(used, time.Hour), "\n"); !strings.Contains(got, "process "+strconv.Itoa(os.Getpid())+" used ") || !strings.Contains(got, " of CPU time; a sample stands for 1h0m0s") {
		t.Errorf("%q", got)
	}
}
