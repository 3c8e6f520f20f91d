package faults

import (
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/cgroup"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/wait"
)

var starvedRows = []Row{
	{
		Fault: "the agent has a twentieth of a CPU",
		Holds: "The agent treats no healthy JVM as hanging: deadlines count the time of the target, not time that " +
			"the agent waits for a CPU. Allocations of a JVM that starts meanwhile have classes. If Java frames are " +
			"missing, every profile says so, even a short one.",
		Test: testStarved,
		Elsewhere: []string{"agent/host/proc.TestCounted", "agent/host/proc.TestPoolWaitsForWhatComputes",
			"agent/host/proc.TestPoolAbandonsWhatIsBlocked",
			"agent/guest.TestMissingFrames", "agent.TestMissingFramesInProfile"},
	},
}

// testStarved limits an agent's CPU by a control group, like a container's quota, and then starts a
// JVM.
func testStarved(t *testing.T) {
	needs.Root(t, "making a control group")
	jdk := needs.JDK(t)
	classes, err := jdk.Compile(t.Context(), jvm.Build{Sources: fstest.MapFS{"Late.java": {Data: []byte(late)}},
		Release: jvm.MinVersion})
	if err != nil {
		t.Fatal(err)
	}
	little := cgroup.New(t, cgroup.CPU)
	url, agent := serve(t, "-v", "-F", "19", "-e", "cpu,alloc")
	little.SetQuota(t, 5*time.Millisecond, 100*time.Millisecond)
	little.Add(t, agent.Process.Pid)
	t.Cleanup(func() { little.Unlimit(t) }) // so that the agent ends soon
	m := mountJDK(t, jdk, false, "")        // its libjvm is in no other JVM of the machine: it must still be read
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
