package faults

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
	"github.com/vmprof-agent/vmprof-agent/tests/wait"
)

// hostileRows: nothing in a process's memory may end the agent.
var hostileRows = []Row{
	{
		Fault: "a JVM whose object headers are zero",
		Holds: "The agent attaches to the JVM. The class is reported as malformed, and a note says what cannot be recorded.",
		Test:  zeroHeaders,
		Elsewhere: []string{
			"vmruntime/hotspot.TestClassAtZero", "vmruntime/hotspot.FuzzObjects",
		},
	},
	{
		Fault: "the agent panics while it handles a process",
		Holds: "The panic is counted by its stage (`vmprof_process_failures_total`), logged once with its stack, and noted in the " +
			"profile. The process has no names until a retry succeeds: the first is after a minute, later ones at growing intervals. Nothing else is affected.",
		Elsewhere: []string{
			"agent/target.TestWorkerPanics", "agent/target.TestFailureAgain", "agent/target.TestJobPanics", "agent/target.TestPoolPanics", "agent/target.TestAttachPanics",
			"agent.TestRecordPanics", "agent.TestWindowPanics", "agent.TestPlacingPanics", "agent.TestDiscoveryPanics", "agent.TestObserverPanics", "agent/sink/prom.TestCollectorPanics",
			"agent/proc.TestPoolPanic",
		},
	},
	{
		Fault: "a link of another user with the name of an output file, or of its directory",
		Holds: "In a directory where everybody may create files the name is refused, and the error says what to do. Elsewhere the link itself is replaced. " +
			"What it leads to is left alone.",
		Elsewhere: []string{"agent/outfile.TestForeignNames", "agent/outfile.TestOwnLinks", "agent/outfile.TestLinkIsReplaced", "agent/outfile.TestNoFile"},
	},
	{
		Fault: "hundreds of idle connections",
		Holds: "The connection that has waited longest for a request is closed when there are 256. While all of these are being answered, " +
			"16 more are for `/metrics`, `/healthz`, `/-/healthy` and `/-/ready`.",
		Elsewhere: []string{"agent/httpd.TestIdleConnections", "agent/httpd.TestRoomForConnections"},
	},
	{
		Fault:     "a service begins or ends while versions are compared",
		Holds:     "What is on one side only is a difference; no amounts make the comparison fail.",
		Elsewhere: []string{"agent/audit.TestNothingOnOneSide", "agent/audit.FuzzCompare"},
	},
	{
		Fault: "a collector moves objects while the agent reads them",
		Holds: "The agent records time, allocations and locks of the JVM to the end.",
		Test:  movingObjects,
	},
}

// zeroHeaders profiles a JVM that overwrites the class of its threads' objects, and another one.
func zeroHeaders(t *testing.T) {
	needs.Root(t, "profiling another process")
	jdk := needs.JDK(t)
	hostile := startJVM(t, jdk, "NoClass", "-XX:-UseCompressedClassPointers", "-XX:+UseSerialGC")
	other := startJVM(t, jdk, "Busy")
	url, _ := serve(t, "-e", "cpu,alloc,lock", "-p", strconv.Itoa(hostile.PID()), "-p", strconv.Itoa(other.PID()))
	pids := []int{hostile.PID(), other.PID()}
	wait.For(t, 2*time.Minute, "most samples of both JVMs have their Java frame", func() bool {
		shares := named(t, url, pids, "Busy.spin")
		t.Logf("shares of samples that have it: %v", shares)
		return shares[pids[0]] >= 0.5 && shares[pids[1]] >= 0.5
	})
}

// movingObjects records JVMs whose collector moves objects at all times.
func movingObjects(t *testing.T) {
	needs.Root(t, "profiling another process")
	for _, jdk := range needs.JDKs(t) {
		guest := startJVM(t, jdk, "Churn", "-XX:+UseZGC", "-Xmx512m")
		for range times(1, 8) {
			recordJVM(t, guest)
		}
	}
}

func recordJVM(t *testing.T, guest *jvm.Guest) {
	t.Helper()
	file := t.TempDir() + "/profile.pb.gz"
	output, code := finish(t, built.Path, "record", "-e", "cpu,alloc,lock", "-d", "2s", "-o", file, "-p", strconv.Itoa(guest.PID()))
	if code != 0 || strings.Contains(output, "panic") {
		t.Errorf("the agent ended with %d:\n%s", code, output)
	}
}
