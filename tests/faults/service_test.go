package faults

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/tests/needs"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/wait"
)

var serviceRows = []Row{
	{Fault: "a web configuration without TLS and users", Test: testOpenAddress,
		Holds: "`serve` refuses an address that others can reach. If the file loses its TLS and users while " +
			"`serve` runs, every request gets status 503 until the file configures one of them again.",
		Elsewhere: []string{"agent/view/httpd/listener.TestListen", "agent/view/httpd/listener.TestLostProtection",
			"agent/view/httpd/listener.TestHalfWrittenConfig"}},
	{Fault: "the certificate, the key or the web configuration of `serve` becomes unusable",
		Holds: "New TLS connections are refused until the files are mended. The log says what is wrong, once for " +
			"each change, and when they are mended; each time is counted (`vmprof_http_tls_config_failures_total`).",
		Elsewhere: []string{"agent/view/httpd/listener.TestBadCertificate"}},
	{Fault: "a hangup", Test: testHangup,
		Holds: "`record` writes its profile and exits. `serve` keeps running."},
	{Fault: "a recording with a COMMAND is killed", Test: testKilledRecording,
		Holds: "COMMAND gets SIGTERM, and SIGKILL 30 s later. The same happens when a signal ends the recording."},
	{Fault: "an agent that is taken over", Test: testPrivileges,
		Holds: "After start, each thread of the agent has only the capabilities that it still needs, no_new_privs " +
			"and an empty bounding set. COMMAND has the privileges of the user."},
	{Fault: "a PID namespace that is not the host's", Test: testPIDNamespace,
		Holds: "`doctor` reports that recording does not work there, and the remedy. `record` warns, and its " +
			"profile contains the reason why names are missing.",
		Elsewhere: []string{"agent/doctor.TestChecks"}},
	{Fault: "the disk of `-o` is full when the recording is written",
		Holds: "The recording is in the next place that has room (`$TMPDIR`, `/var/tmp`, the home directory, " +
			"`/dev/shm`), in a directory of its own. What is " +
			"printed names it, and the exit code is 1. If no place has room, the recording stays in memory until one " +
			"has.",
		Elsewhere: []string{"cmd/vmprof-agent/record.TestRecordingOnFullDisk", "cmd/vmprof-agent/record.TestRecordingInMemory"}},
	{Fault: "an image without /tmp", Test: testWithoutTmp,
		Holds: "`doctor` tries the call engines nevertheless, like `record`."},
	{Fault: "JVMs start and end all the time",
		Holds: "Descriptors, BPF maps, programs and links of a JVM are given back when it has ended, and so is " +
			"what the agent knows of it.",
		Elsewhere: []string{"tests/endurance.TestFlat", "agent/guest.TestPerProcessAfterEnd",
			"agent/collect/events.TestSeedingOfEnded", "agent/collect/events/probes.TestRemovedPlan"}},
	{Fault: "a COMMAND that runs longer than -d", Test: testShortRecording,
		Holds: "`record` reports that COMMAND still runs, with its process id. COMMAND keeps running."},
}

func testOpenAddress(t *testing.T) {
	config := filepath.Join(t.TempDir(), "web.yml")
	if err := os.WriteFile(config, []byte("http_server_config:\n  http2: true\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	output, code := finish(t, built.Path, "serve", "--listen=0.0.0.0:0", "--web.config.file="+config)
	if code != 1 || !strings.Contains(output, "neither") || !strings.Contains(output, "basic_auth_users") {
		t.Errorf("ended with %d:\n%s", code, output)
	}
}

func testHangup(t *testing.T) {
	needs.Root(t, "sampling")
	// The agent must get the signal even if nohup(1) makes the test ignore it: signals caught here
	// are at their default there.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGHUP)
	defer signal.Stop(caught)
	path := filepath.Join(t.TempDir(), "profile.pb.gz")
	record := startAgent(t, built.Path, "record", "-d", "10m", "-o", path, "--", "sleep", "600")
	pid := commandOf(t, record, "sleep")
	if err := record.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if code := record.wait(t); code != 0 {
		t.Errorf("record ended with %d:\n%s", code, record.output)
	}
	if _, err := profiler.ReadProfile(path); err != nil {
		t.Error(err)
	}
	wait.For(t, 30*time.Second, "COMMAND has ended", func() bool { return !alive(pid) })

	serve := startAgent(t, built.Path, "serve", "--listen=127.0.0.1:0")
	url := serve.address(t)
	if err := serve.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	// Its response to the next signal shows that it received this one.
	if status, _ := profiler.Get(t, url+"/-/healthy"); status != http.StatusOK {
		t.Errorf("status %d after a hangup", status)
	}
	if err := serve.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := serve.wait(t); code != 0 {
		t.Errorf("serve ended with %d:\n%s", code, serve.output)
	}
}

// commandOf waits until the agent's COMMAND runs, and returns its process.
func commandOf(t *testing.T, run *agentRun, comm string) (pid int) {
	t.Helper()
	wait.For(t, time.Minute, comm+" runs", func() bool {
		tasks := fmt.Sprintf("/proc/%d/task", run.Process.Pid)
		threads, _ := os.ReadDir(tasks)
		for _, thread := range threads { // children are those of the thread that forked
			text, _ := os.ReadFile(filepath.Join(tasks, thread.Name(), "children"))
			for _, child := range strings.Fields(string(text)) {
				name, _ := os.ReadFile("/proc/" + child + "/comm")
				if strings.TrimSpace(string(name)) == comm {
					pid, _ = strconv.Atoi(child)
					return true
				}
			}
		}
		return false
	})
	t.Cleanup(func() {
		if alive(pid) {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	return pid
}

// alive reports whether a process runs, and is not a zombie.
func alive(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := bytes.Cut(text, []byte(") "))
	return len(rest) > 0 && rest[0] != 'Z'
}

func testKilledRecording(t *testing.T) {
	needs.Root(t, "sampling")
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		record := startAgent(t, built.Path, "record", "-d", "10m", "-o", "out.folded", "--", "sleep", "600")
		pid := commandOf(t, record, "sleep")
		if err := record.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		record.wait(t)
		wait.For(t, 30*time.Second, fmt.Sprintf("COMMAND has ended after the agent's %v", signal),
			func() bool { return !alive(pid) })
	}
}

func testShortRecording(t *testing.T) {
	needs.Root(t, "sampling")
	record := startAgent(t, built.Path, "record", "-d", "1s", "-o", "out.folded", "--", "sleep", "600")
	pid := commandOf(t, record, "sleep")
	if code := record.wait(t); code != 0 {
		t.Errorf("ended with %d", code)
	}
	if want := fmt.Sprintf("sleep still runs as process %d", pid); !strings.Contains(record.output.String(), want) {
		t.Errorf("no %q in\n%s", want, record.output)
	}
	if !alive(pid) {
		t.Error("COMMAND was ended")
	}
}

func testPrivileges(t *testing.T) {
	needs.Root(t, "sampling")
	needed := uint64(1<<unix.CAP_BPF | 1<<unix.CAP_PERFMON | 1<<unix.CAP_SYS_PTRACE |
		1<<unix.CAP_DAC_READ_SEARCH | 1<<unix.CAP_SYSLOG | 1<<unix.CAP_CHECKPOINT_RESTORE)
	admin := uint64(1 << unix.CAP_SYS_ADMIN) // where the kernel asks for it: see doctor
	serve := startAgent(t, built.Path, "serve", "--listen=127.0.0.1:0")
	serve.address(t)
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", serve.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		have := privilegesOf(t, fmt.Sprintf("/proc/%d/task/%s/status", serve.Process.Pid, thread.Name()))
		for _, set := range []string{"CapPrm", "CapEff", "CapInh", "CapAmb"} {
			if have[set]&^(needed|admin) != 0 {
				t.Errorf("thread %s: %s is %#x, want no more than %#x", thread.Name(), set, have[set], needed)
			}
		}
		if have["CapPrm"]&needed != needed {
			t.Errorf("thread %s: of %#x only %#x is left", thread.Name(), needed, have["CapPrm"])
		}
		if have["CapBnd"] != 0 || have["NoNewPrivs"] != 1 {
			t.Errorf("thread %s: bounding set %#x, no_new_privs %d", thread.Name(), have["CapBnd"], have["NoNewPrivs"])
		}
	}

	record := startAgent(t, built.Path, "record", "-d", "1m", "-o", "out.folded", "--", "sleep", "600")
	pid := commandOf(t, record, "sleep")
	mine, command := privilegesOf(t, "/proc/self/status"), privilegesOf(t, fmt.Sprintf("/proc/%d/status", pid))
	for set, want := range mine {
		if command[set] != want {
			t.Errorf("COMMAND: %s is %#x, want %#x", set, command[set], want)
		}
	}
	if have := privilegesOf(t, fmt.Sprintf("/proc/%d/status",
		record.Process.Pid)); have["CapPrm"]&^(needed|admin) != 0 {
		t.Errorf("record: permitted %#x", have["CapPrm"])
	}

	// Files that only root may write are written all the same.
	dir := t.TempDir()
	if err := os.Chown(dir, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if output, code := finish(t, built.Path, "record", "-d", "1s", "--notes", "-o",
		filepath.Join(dir, "out.folded")); code != 0 {
		t.Errorf("a file in another user's directory: ended with %d:\n%s", code, output)
	}
}

// privilegesOf reads the capability sets and no_new_privs of a status file.
func privilegesOf(t *testing.T, path string) map[string]uint64 {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	have := make(map[string]uint64)
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		if strings.HasPrefix(key, "Cap") || key == "NoNewPrivs" {
			if have[key], err = strconv.ParseUint(strings.TrimSpace(value), 16, 64); err != nil {
				t.Fatal(err)
			}
		}
	}
	return have
}

func testPIDNamespace(t *testing.T) {
	needs.Root(t, "sampling")
	inside := []string{"-pfm", "--mount-proc", built.Path}
	output, code := finish(t, "unshare", append(inside, "doctor")...)
	if code != 1 || !strings.Contains(output, "missing  PID namespace") || !strings.Contains(output, "--pid=host") {
		t.Errorf("doctor ended with %d:\n%s", code, output)
	}
	output, code = finish(t, "unshare", append(inside, "record", "-d", "1s", "--notes", "-o",
		filepath.Join(t.TempDir(), "out.txt"))...)
	if code != 0 || strings.Count(output, "PID namespace") < 2 {
		t.Errorf("record ended with %d, and does not both warn and say so in the profile:\n%s", code, output)
	}
}

func testWithoutTmp(t *testing.T) {
	needs.Root(t, "sampling")
	doctor := exec.Command(built.Path, "doctor", "--json")
	doctor.Env = append(os.Environ(), "TMPDIR=/nonexistent")
	output, err := doctor.Output() // it may end with 1
	if err != nil && doctor.ProcessState == nil {
		t.Fatal(err)
	}
	if strings.Contains(string(output), "/nonexistent") || !strings.Contains(string(output), `"engine_`) {
		t.Errorf("the call engines were not tried:\n%s", output)
	}
}
