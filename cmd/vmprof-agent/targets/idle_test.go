package targets

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/tests/sleeper"
	"github.com/vmprof-agent/vmprof-agent/tests/wait"
)

func TestIdleNotes(t *testing.T) {
	guest := sleeper.Start(t)
	pid := guest.Process.Pid
	wait.For(t, wait.Long, "it sleeps", func() bool {
		comm, _ := proc.DefaultRoot.Comm(pid)
		stat, err := proc.DefaultRoot.Stat(pid)
		return comm == "sleep" && err == nil && stat.State == 'S'
	})
	used := UsedBy([]int{pid, os.Getpid(), 1<<22 - 1})
	if len(used) != 2 {
		t.Fatalf("%v", used)
	}
	began, _ := proc.CPUTime(os.Getpid())
	for now := began; now-began < 50*time.Millisecond; {
		now, _ = proc.CPUTime(os.Getpid())
	}
	text := func(sample time.Duration) string {
		notes, stopped := IdleNotes(used, sample)
		if stopped {
			t.Error("the test itself is stopped")
		}
		return strings.Join(notes, "\n")
	}
	if got, want := text(10*time.Millisecond), "process "+strconv.Itoa(pid)+" used no CPU time"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := text(time.Hour); !strings.Contains(got, "process "+strconv.Itoa(os.Getpid())+" used ") ||
		!strings.Contains(got, " of CPU time, less than one sample period (1h0m0s)") {
		t.Errorf("%q", got)
	}
	if err := guest.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	wait.For(t, wait.Long, "it is stopped", func() bool { return stoppedBy(pid) != "" })
	notes, stopped := IdleNotes(UsedBy([]int{pid}), 10*time.Millisecond)
	if want := fmt.Sprintf("process %d is stopped by a signal: `kill -CONT %d` continues it", pid, pid); !stopped ||
		strings.Join(notes, "\n") != want {
		t.Errorf("stopped is %v: %q", stopped, notes)
	}
	for _, test := range []struct {
		pids []int
		want string
	}{{nil, ""}, {[]int{pid}, notes[0]}, {[]int{pid, pid}, "all 2 processes are stopped, by signals or a debugger"},
		{[]int{pid, os.Getpid()}, ""}} {
		if got := StoppedNote(test.pids); got != test.want {
			t.Errorf("of %v: %q, want %q", test.pids, got, test.want)
		}
	}
}
