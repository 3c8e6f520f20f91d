package faults

import (
	"bufio"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/wait"
)

// hostileRows: nothing in a process's memory may end the agent.
var hostileRows = []Row{
	{
		Fault: "a JVM whose object headers are zero",
		Holds: "The agent attaches to the JVM. The class is reported as malformed, and a note says what cannot be " +
			"recorded.",
		Test: zeroHeaders,
		Elsewhere: []string{
			"vmruntime/hotspot.TestClassAtZero", "vmruntime/hotspot.FuzzObjects",
		},
	},
	{
		Fault: "the agent panics while it handles a process",
		Holds: "The panic is counted by its stage (`vmprof_process_failures_total`), logged once with its stack, and " +
			"noted in the " +
			"profile. The process has no names until a retry succeeds: the first is after a minute, later ones at " +
			"growing intervals. Nothing else is affected.",
		Elsewhere: []string{
			"agent/guest.TestWorkerPanics", "agent/guest.TestFailureAgain", "agent/guest.TestJobPanics",
			"agent/guest.TestPoolPanics", "agent/guest.TestAttachPanics",
			"agent.TestRecordPanics", "agent.TestWindowPanics", "agent.TestPlacingPanics", "agent.TestDiscoveryPanics",
			"agent.TestObserverPanics", "agent/view/sink/prom.TestCollectorPanics",
			"agent/host/proc.TestPoolPanic",
		},
	},
	{
		Fault: "the agent panics over a request, a window, or what it does from time to time",
		Holds: "The panic is counted by its stage and logged with its stack. The request is answered with status " +
			"500, and all else goes on.",
		Elsewhere: []string{"agent/view/httpd/listener.TestCaught", "agent.TestObserverPanics",
			"agent/view/audit.FuzzCompare"},
	},
	{
		Fault: "a link of another user with the name of an output file, or of a directory on the way to it",
		Holds: "In a directory where everybody may create files the name is refused, and the error says what to do. " +
			"Elsewhere the link itself is replaced. " +
			"On the way, a link is followed only if it and its directory are the user's own or root's, and a " +
			"directory of another user is refused where everybody may create " +
			"files. What a link leads to is left alone.",
		Elsewhere: []string{"agent/host/outfile.TestForeignNames", "agent/host/outfile.TestForeignDirectories",
			"agent/host/outfile.TestOwnLinks", "agent/host/outfile.TestLinkIsReplaced",
			"agent/host/outfile.TestNoFile", "agent/host/outfile.TestMakeDir"},
	},
	{
		Fault: "files of other users behind the names that a process chooses",
		Holds: "For a process the agent opens what the process's own user could open, through every directory and " +
			"link, in the process's mount namespace: maps of " +
			"code, binaries, debug files, argument files. Every other file is counted once, by cause " +
			"(`vmprof_target_read_failures_total`); a note says that the map of a process is not used.",
		Test: linkedMap,
		Elsewhere: []string{"agent/host/proc.TestOpenFileAsTheKernel", "agent/host/proc.TestOpenMappedAsUser",
			"agent/host/proc.TestReadRegularAsSetUID", "agent/host/proc.TestOpenFileOfProcfs",
			"agent/host/proc.TestOpenPublic", "agent/guest.TestMapsThatAreNotUsed", "agent/guest.TestRefusedFiles"},
	},
	{
		Fault: "hundreds of connections that ask nothing, or a part of a request, and come back as soon as they are " +
			"closed",
		Holds: "A connection takes a place once its request has arrived, and keeps it until that is answered. Of " +
			"1,024 that have not asked yet, the oldest is closed. The " +
			"connection that has waited longest for a further request is closed when there are 256. While all of " +
			"these are being answered, 16 more are for `/metrics`, " +
			"`/healthz`, `/-/healthy` and `/-/ready`.",
		Elsewhere: []string{"agent/view/httpd/listener.TestIdleConnections",
			"agent/view/httpd/listener.TestReconnectingClients",
			"agent/view/httpd/listener.TestRoomForConnections", "agent/view/httpd/listener.TestNewConnectionIsKept"},
	},
	{
		Fault: "clients that do not read what they ask for, on every connection that there may be",
		Holds: "Answers are complete before they are sent, and those who ask for metrics meanwhile share one. Of 256 " +
			"connections that are all being answered, the one that has been sent to for longest is closed for " +
			"another client after a second. So is the oldest of 32 profiles and data for pages that are being sent.",
		Elsewhere: []string{"agent/view/httpd/listener.TestSlowScrapers",
			"agent/view/httpd/listener.TestScrapesAreShared",
			"agent/view/httpd.TestSlowClients"},
	},
	{
		Fault: "clients that guess passwords",
		Holds: "One password is checked at a time, and wrong ones take at most a tenth of a CPU. An address may try " +
			"five, then one every ten seconds; others get " +
			"status 429 and `Retry-After`. Networks with fewer wrong passwords come first. Passwords that were right " +
			"are remembered for ten minutes after their last use, and unknown users take as long as others.",
		Elsewhere: []string{"agent/view/httpd/listener.TestWrongPasswords",
			"agent/view/httpd/listener.TestRightPasswords",
			"agent/view/httpd/listener.TestPasswordInParallel", "agent/view/httpd/listener.TestRestAfterWrongPassword",
			"agent/view/httpd/listener.TestPasswordBounds",
			"agent/view/httpd/listener.TestPasswordAmongGuesses",
			"agent/view/httpd/listener.TestPasswordOfManyAddresses"},
	},
	{
		Fault: "a profile file that decompresses to much more, or whose parts take much more once parsed",
		Holds: "`report` and `compare` find out what it takes before they keep any of it, and refuse more than 128 " +
			"MB if that is also more than 300 times the size of the file. " +
			"The error names the bound, which `GOMEMLIMIT` sets. So do they refuse stacks of more than 65,536 frames.",
		Elsewhere: []string{"agent/view/report/input.TestReadRefuses", "agent/view/report/input.TestMeasure",
			"agent/view/report/input.TestReadBombs", "agent/view/report/input.TestMemoryForDeepStacks",
			"agent/view/report/input.FuzzRead"},
	},
	{
		Fault: "a file, a link or a socket of others where a Unix socket of the agent is to be",
		Holds: "The socket of an agent that was killed is replaced. Anything else is left alone, and the error says " +
			"what it is. Nobody can connect before the socket " +
			"has its owner and its mode, nor can other users put another one in its place: it is refused if others " +
			"can replace what is in a directory on the way.",
		Elsewhere: []string{"agent/host/socketfile.TestListen", "agent/host/socketfile.TestListenInTheWay",
			"agent/host/socketfile.TestListenInDirectories",
			"agent/host/socketfile.TestListenAmongOthers", "agent/host/socketfile.TestAccess",
			"agent/view/httpd/listener.TestServeOnSocket"},
	},
	{
		Fault:     "a service begins or ends while versions are compared",
		Holds:     "What is on one side only is a difference; no amounts make the comparison fail.",
		Elsewhere: []string{"agent/view/audit.TestNothingOnOneSide", "agent/view/audit.FuzzCompare"},
	},
	{
		Fault: "a process maps a libjvm and calls the functions in it that have probes, millions of times a second",
		Holds: "Its hits spend no budget and are counted by process. Above 5,000 a second, the log and the profile " +
			"name it, and each JVM that maps the file gets " +
			"probes of its own, which it does not pass. A JVM that passes too many spends its own budget, where the " +
			"kernel can confine probes to a process. With `-p`, others never pass probes of events.",
		Test: strangeCalls,
		Elsewhere: []string{"bpf.TestKernelStrangers", "agent/collect/events/probes.TestSeparate",
			"agent/collect/events/probes.TestWatchStrangers"},
	},
	{
		Fault: "a collector moves objects while the agent reads them",
		Holds: "The agent records time, allocations and locks of the JVM to the end.",
		Test:  movingObjects,
	},
}

// linkedMap records a process whose map is a link to a private file of root's, and one with a map
// of its own.
func linkedMap(t *testing.T) {
	needs.Root(t, "profiling another process")
	if runtime.GOARCH != "amd64" {
		t.Skip("the program's code is for amd64")
	}
	dir := publicDir(t)
	program, private := filepath.Join(dir, "linkedmap"), filepath.Join(dir, "private")
	compile(t, "-O1", "-fno-omit-frame-pointer", "-o", program, "c/linkedmap.c")
	if err := os.WriteFile(private, []byte("200000000000 100 secret_of_root\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, args := range [][]string{{"65534"}, {"65534", private}} {
		c := exec.CommandContext(t.Context(), program, args...)
		c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Process.Kill(); c.Wait() })
		name, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			t.Fatalf("the process with a map: %v", err)
		}
		t.Cleanup(func() { os.Remove(strings.TrimSpace(name)) })
		pids = append(pids, c.Process.Pid)
	}
	recording, err := built.Record(t.Context(), profiler.Options{PID: pids[0], Duration: 3 * time.Second,
		Extra: []string{"-p", strconv.Itoa(pids[1])}})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int64{}
	for _, s := range recording.Profile.Sample {
		for _, f := range functions(s) {
			found[f] += s.Value[0]
		}
	}
	if found["own_code"] == 0 || found["secret_of_root"] > 0 {
		t.Errorf("%d samples of own_code, %d with text of a file that the process cannot read", found["own_code"],
			found["secret_of_root"])
	}
	if note := fmt.Sprintf("compiled code of process %d has no names",
		pids[1]); !strings.Contains(strings.Join(recording.Profile.Comments, "\n"), note) {
		t.Errorf("no note: %q", recording.Profile.Comments)
	}
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
	output, code := finish(t, built.Path, "record", "-e", "cpu,alloc,lock", "-d", "2s", "-o", file, "-p",
		strconv.Itoa(guest.PID()))
	if code != 0 || strings.Contains(output, "panic") {
		t.Errorf("the agent ended with %d:\n%s", code, output)
	}
}

// strangeCalls records the allocations of a JVM while a process that is none calls the function
// that all JVMs of the library call.
func strangeCalls(t *testing.T) {
	needs.Root(t, "profiling another process")
	const function = "send_allocation_in_new_tlab"
	for _, jdk := range needs.JDKs(t)[:1] {
		library := filepath.Join(jdk.Home, "lib/server/libjvm.so")
		lib, err := elf.Open(library)
		if err != nil {
			t.Fatal(err)
		}
		defer lib.Close()
		symbols, err := lib.Symbols()
		at := slices.IndexFunc(symbols, func(s elf.Symbol) bool { return strings.Contains(s.Name, function) })
		if err != nil || at < 0 {
			needs.Missing(t, fmt.Errorf("%s has no symbol %s: %v", library, function, err))
		}
		program := filepath.Join(publicDir(t), "caller")
		compile(t, "-O1", "-o", program, "c/caller.c", "-ldl")
		guest := startJVM(t, jdk, "Calm", "-XX:TLABSize=64k", "-XX:-ResizeTLAB")
		c := exec.CommandContext(t.Context(), program, library, fmt.Sprintf("%x", symbols[at].Value))
		c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		out, err := c.StdoutPipe()
		if err == nil {
			err = c.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		defer func() { c.Process.Kill(); c.Wait() }()
		if said, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Fatalf("the process that calls: %q, %v", said, err)
		}
		recording, err := built.Record(t.Context(), profiler.Options{Duration: 5 * time.Second,
			Extra: []string{"-e", "alloc"}})
		if err != nil {
			t.Fatal(err)
		}
		notes := strings.Join(recording.Profile.Comments, "\n")
		if note := fmt.Sprintf("(pid %d), which is not profiled, passed probes of events",
			c.Process.Pid); !strings.Contains(notes, note) {
			t.Errorf("no note on the process that calls: %s", notes)
		}
		m, err := stored.MetadataOf(recording.Profile)
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, e := range m.Extents {
			if e.PID != int64(guest.PID()) || e.Subject != profile.Allocations.String() {
				continue
			}
			if found = true; !e.Good() {
				t.Errorf("%.0f %% of the JVM's allocated bytes were observed: %+v", 100*e.Share(), e.Missed)
			}
		}
		if !found {
			t.Errorf("nothing is known of the allocations of the JVM: %s", notes)
		}
	}
}
