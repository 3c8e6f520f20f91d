package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/wait"
)

var starvedRows = []Row{
	{
		Fault: "the agent has a twentieth of a CPU",
		Holds: "The agent treats no healthy JVM as hanging: deadlines count the time of the target, not time that the agent waits for a CPU. Allocations of a JVM that starts meanwhile have classes. If Java frames are missing, every profile says so, even a short one.",
		Test:  testStarved,
		Elsewhere: []string{"agent/proc.TestCounted", "agent/proc.TestPoolWaitsForWhatComputes", "agent/proc.TestPoolAbandonsWhatIsBlocked",
			"agent/target.TestMissingFrames", "agent.TestMissingFramesInProfile"},
	},
}

// testStarved limits an agent's CPU by a control group, like a container's quota, and then starts a JVM.
func testStarved(t *testing.T) {
	needs.Root(t, "making a control group")
	jdk := needs.JDK(t)
	classes, err := jdk.Compile(t.Context(), jvm.Build{Sources: fstest.MapFS{"Late.java": {Data: []byte(late)}}, Release: jvm.MinVersion})
	if err != nil {
		t.Fatal(err)
	}
	little := makeQuota(t)
	url, agent := serve(t, "-v", "-F", "19", "-e", "cpu,alloc")
	little.starve(t, agent.Process.Pid)
	m := mountJDK(t, jdk, false, "") // its libjvm is in no other JVM of the machine: it must still be read
	runLateWithin(t, m.jdk, classes, url, 0, 5*time.Minute)
	wait.For(t, time.Minute, "the JDK is unmounted", func() bool { return m.unmount(t) })
	for line := range strings.Lines(agent.output.String()) {
		if strings.Contains(line, "process is quarantined") || strings.Contains(line, "did not answer") {
			t.Errorf("the log says that a target hung: %s", line)
		}
	}
	// Other targets of the machine may hang; late reads must not count as refused.
	_, metrics := profiler.Get(t, url+"/metrics")
	if failed := regexp.MustCompile(`(?m)^.*cause="(timeout|quarantined)".* [1-9].*$`).FindString(metrics); failed != "" {
		t.Errorf("reads failed: %s", failed)
	}
}

// A quota is a control group with little CPU.
type quota struct {
	dir, file, little, all string // the file of the limit, and what it has
}

// makeQuota makes a quota of a twentieth of a CPU. It is removed after everything that the caller started later has ended.
func makeQuota(t *testing.T) quota {
	t.Helper()
	q := quota{"/sys/fs/cgroup", "cpu.max", "5000 100000", "max 100000"}
	if _, err := os.Stat("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"); err == nil {
		q = quota{"/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "5000", "-1"} // of a period of 100 ms, as by default
	}
	q.dir = filepath.Join(q.dir, fmt.Sprintf("vmprof-starved-%d", os.Getpid()))
	if err := os.Mkdir(q.dir, 0o755); err != nil {
		needs.Missing(t, err)
	}
	t.Cleanup(func() {
		if err := os.Remove(q.dir); err != nil {
			t.Error(err)
		}
	})
	if err := q.write(q.file, q.little); err != nil {
		needs.Missing(t, fmt.Errorf("limit the CPU of a control group: %w", err))
	}
	return q
}

func (q quota) write(file, text string) error {
	return os.WriteFile(filepath.Join(q.dir, file), []byte(text), 0)
}

// starve limits a process to the quota, until the end of the test.
func (q quota) starve(t *testing.T, pid int) {
	t.Helper()
	if err := q.write("cgroup.procs", strconv.Itoa(pid)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := q.write(q.file, q.all); err != nil {
			t.Error(err)
		}
	})
}
