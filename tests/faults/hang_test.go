package faults

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
)

var hangRows = []Row{
	{
		Fault: "64 processes whose memory cannot be read look like JVMs",
		Holds: "Another user's JVM keeps all its frames.",
		Test:  testHang,
	},
	{
		Fault: "64 threads wait with a stack that cannot be read",
		Holds: "The recording ends, and a JVM of another user has the stacks of its waiting threads.",
		Test:  testHangingStacks,
	},
	{
		Fault: "reads of many processes hang",
		Holds: "The first read of a process has 100 ms. At most 4 reads of one user in one cgroup may hang. " +
			"Processes that " +
			"answered before have workers of their own.",
		Elsewhere: []string{"agent/host/proc.TestPoolAttack", "agent/host/proc.TestPoolManyUsers",
			"agent/host/proc.TestPoolOwnerGone", "agent/host/proc.TestPoolFirstCall",
			"agent/host/proc.TestMemoryPresence"},
	},
}

// buildHang builds the program that makes its readers hang.
func buildHang(t *testing.T) string {
	t.Helper()
	dir := publicDir(t)
	library, program := filepath.Join(dir, "libjvm.so"), filepath.Join(dir, "hang")
	compile(t, "-shared", "-fPIC", "-DHANG_LIBRARY", "-o", library, "c/hang.c")
	compile(t, "-O1", "-o", program, "c/hang.c", "-L"+dir, "-ljvm", "-Wl,-rpath,"+dir)
	return program
}

// publicDir is a directory that all users may read.
func publicDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// compile runs the C compiler.
func compile(t *testing.T, args ...string) {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		needs.Missing(t, err)
	}
	if output, code := finish(t, "gcc", args...); code != 0 {
		t.Fatalf("gcc: %s", output)
	}
}

// startHanging starts so many of them as a user.
func startHanging(t *testing.T, program string, n, uid int) {
	t.Helper()
	for range n {
		c := exec.CommandContext(t.Context(), program, strconv.Itoa(uid))
		c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		c.Stderr = os.Stderr
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Process.Kill(); c.Wait() })
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Fatalf("the process that hangs its readers: %v", err)
		}
	}
}

func testHang(t *testing.T) {
	needs.Root(t, "sampling")
	program := buildHang(t)
	jdks, err := jvm.Find(jvm.Root)
	if err != nil || len(jdks) == 0 {
		t.Fatalf("find JDKs: %v", err)
	}
	const nobody, frequency = 65534, 199
	for _, uid := range []int{nobody} {
		t.Run("user "+strconv.Itoa(uid), func(t *testing.T) {
			startHanging(t, program, 64, uid)
			guest := startRedefined(t, jdks[len(jdks)-1], time.Hour)
			recording, err := built.Record(t.Context(), profiler.Options{
				Frequency: frequency, Duration: time.Duration(times(6, 30)) * time.Second,
			})
			if err != nil {
				t.Fatal(err)
			}
			var all, whole int64
			broken := map[string]int64{}
			for _, s := range recording.Profile.Sample {
				stack := functions(s)
				if !slices.Contains(s.NumLabel["pid"], int64(guest.PID())) ||
					!slices.Contains(s.Label["thread"], "worker") {
					continue
				}
				all += s.Value[0]
				// Below its Java frames, a thread has a frame of libc, without a name if libc is
				// stripped.
				java := stack[max(slices.IndexFunc(stack, isWorkers), 0):]
				if fault := judgeHot(stack); fault != "" || slices.ContainsFunc(java, isNameless) {
					broken[strings.Join(stack, " < ")] += s.Value[0]
					continue
				}
				whole += s.Value[0]
			}
			t.Logf("%d samples of the JVM, %d whole; first name after %.2f s", all, whole,
				recording.Stats.FirstSymbolised)
			// Samples from before the agent has attached cannot be named: 0.1 s of the JVM's time
			// are allowed for that.
			const least, start = 0.99, frequency / 10
			if all < 50 || float64(whole+start) < least*float64(all) {
				t.Errorf("%d of %d samples of the JVM are whole and named; others: %v", whole, all, broken)
			}
		})
	}
}

func testHangingStacks(t *testing.T) {
	needs.Root(t, "sampling")
	jdks, err := jvm.Find(jvm.Root)
	if err != nil || len(jdks) == 0 {
		t.Fatalf("find JDKs: %v", err)
	}
	program := filepath.Join(publicDir(t), "hangstack")
	compile(t, "-O1", "-o", program, "c/hangstack.c")
	const nobody = 65534
	startHanging(t, program, 64, nobody)
	guest := startRedefined(t, jdks[len(jdks)-1], time.Hour)
	recording, err := built.Record(t.Context(), profiler.Options{
		Frequency: 99, Duration: time.Duration(times(4, 20)) * time.Second, Extra: []string{"-e", "offcpu"},
	})
	if err != nil {
		t.Fatal(err)
	}
	time := slices.IndexFunc(recording.Profile.SampleType,
		func(t *profile.ValueType) bool { return t.Type == "offcpu" })
	var found, lacking int64
	for _, s := range recording.Profile.Sample {
		lacks := slices.Contains(functions(s), "[still waiting]")
		switch pid := s.NumLabel["pid"]; {
		case lacks && slices.Contains(pid, int64(guest.PID())):
			lacking += s.Value[time]
		case slices.Contains(pid, int64(guest.PID())):
			found += s.Value[time]
		}
	}
	t.Logf("ns without a stack: %d of the JVM's %d", lacking, lacking+found)
	if found == 0 || lacking > (lacking+found)/50 {
		t.Errorf("of the JVM's %d ns, %d are without a stack", lacking+found, lacking)
	}
}
