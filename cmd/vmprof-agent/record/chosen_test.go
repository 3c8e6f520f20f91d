package record

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/tests/wait"
)

// A recording of processes that have all ended is refused; of some, it warns. A zombie has ended.
func TestChosenEnded(t *testing.T) {
	var zombies []int
	for range 2 {
		cmd := exec.CommandContext(t.Context(), "/bin/sleep", "0")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		zombies = append(zombies, cmd.Process.Pid)
		defer cmd.Wait()
	}
	gone := chosenProcesses(zombies)
	wait.For(t, wait.Long, "sleep 0 ends", func() bool { return len(gone.running(gone.processes)) == 0 })
	for _, test := range []struct {
		pids         []int
		fails, warns string
	}{
		{nil, "", ""},
		{[]int{os.Getpid()}, "", ""},
		{zombies[:1], fmt.Sprintf("process %d ended before recording began; no file was written", zombies[0]), ""},
		{zombies, fmt.Sprintf("processes %d, %d ended before recording began", zombies[0], zombies[1]), ""},
		{[]int{os.Getpid(), zombies[1]}, "", fmt.Sprintf("process ended before recording began\" pid=%d", zombies[1])},
	} {
		var log bytes.Buffer
		c := chosenProcesses(test.pids)
		err := c.checkRunning(slog.New(slog.NewTextHandler(&log, nil)))
		if (err == nil) != (test.fails == "") || err != nil && !strings.HasPrefix(err.Error(), test.fails) {
			t.Errorf("%v: %v, want %q", test.pids, err, test.fails)
		}
		if got := log.String(); !strings.Contains(got, test.warns) || test.warns == "" && got != "" {
			t.Errorf("%v: logs %q, want %q", test.pids, got, test.warns)
		}
	}
}

// Processes are waited for until the last one has ended, which the kernel reports at once.
func TestWaitGone(t *testing.T) {
	var pids []int
	var all []*exec.Cmd
	for range 2 {
		cmd := exec.CommandContext(t.Context(), "/bin/sleep", "1000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		pids, all = append(pids, cmd.Process.Pid), append(all, cmd)
	}
	c := chosenProcesses(pids)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if c.waitGone(canceled) {
		t.Error("processes that run have ended")
	}
	for i, cmd := range all {
		end, err := openEnd(pids[i])
		if err != nil {
			t.Fatal(err)
		}
		go cmd.Process.Kill()
		if err := waitEnd(end); err != nil {
			t.Errorf("the end of a process is not reported: %v", err)
		}
		end.Close()
		if running := c.running(c.processes); len(running) != len(all)-i-1 {
			t.Errorf("%d processes run after %d ends", len(running), i+1)
		}
		defer cmd.Wait()
	}
	if end, err := openEnd(os.Getpid()); err != nil {
		t.Error(err)
	} else {
		go end.Close()
		if waitEnd(end) == nil {
			t.Error("the end of a process that runs is reported")
		}
	}
	if !c.waitGone(t.Context()) {
		t.Error("processes that have ended run")
	}
}

// COMMAND has a name even if it ended before it could be asked.
func TestNameCommand(t *testing.T) {
	for _, test := range []struct {
		process       profile.Process
		command       string
		service, comm string
	}{
		{profile.Process{PID: 7}, "/usr/bin/java -Xmx1g Nope", "Nope", "java"},
		{profile.Process{PID: 7, Service: "[unknown]"}, "/bin/true", "true", "true"},
		{profile.Process{PID: 7, Service: "shop", Comm: "java"}, "/usr/bin/java Nope", "shop", "java"},
		{profile.Process{PID: 8}, "/bin/true", "", ""},
	} {
		nameCommand(&profile.Profile{Processes: []*profile.Process{&test.process}}, 7, strings.Fields(test.command))
		if p := test.process; p.Service != test.service || p.Comm != test.comm {
			t.Errorf("%s: service %q, comm %q, want %q and %q", test.command, p.Service, p.Comm, test.service,
				test.comm)
		}
	}
}
